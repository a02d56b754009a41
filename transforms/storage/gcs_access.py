"""How Google Cloud Storage is reached: its address, the credentials, and the project that pays."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_USUAL_UNIVERSE = "googleapis.com"


class GcsAccess(NamedTuple):
    """What determines how to reach the storage.

    Attributes:
      emulator: address of an emulator, which needs no credentials; empty for the real storage.
      no_auth: whether to read public buckets without credentials.
      impersonate: service account to act as, after those that delegate to it, with commas between; or empty.
      user_project: project that pays for requests to buckets whose requesters pay; empty for none.
    """

    emulator: str = ""
    no_auth: bool = False
    impersonate: str = ""
    user_project: str = ""


def emulator_host() -> str:
    """Returns the address of the emulator that the environment names; empty if there is none."""
    return os.environ.get("STORAGE_EMULATOR_HOST", "")


def access_from(options: Any) -> GcsAccess:
    """Returns the access that Beam's options select; None stands for no options."""
    emulator = emulator_host()
    if options is None:
        return GcsAccess(emulator)
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    from shardwright.transforms.storage.bucket_options import BucketOptions

    google_options = options.view_as(GoogleCloudOptions)
    return GcsAccess(
        emulator,
        bool(google_options.no_auth),
        google_options.impersonate_service_account or "",
        options.view_as(BucketOptions).gcs_user_project or "",
    )


def endpoint(access: GcsAccess) -> str:
    """Returns the address of the storage without a path, as Google's own client chooses it."""
    given = access.emulator or os.environ.get("API_ENDPOINT_OVERRIDE", "")
    if given:
        return (given if "://" in given else f"http://{given}").rstrip("/")
    return f"https://storage.{os.environ.get('GOOGLE_CLOUD_UNIVERSE_DOMAIN') or _USUAL_UNIVERSE}"


def needs_client_certificate() -> bool:
    """Returns whether the environment asks to show a client certificate to the storage."""
    return os.environ.get("GOOGLE_API_USE_CLIENT_CERTIFICATE", "").lower() == "true"


def credentials_for(access: GcsAccess) -> Any:
    """Returns the credentials of google-auth that the options select.

    If there are none, Beam's GcsIO would search five times with pauses, 20 seconds in total.

    Raises:
      google.auth.exceptions.DefaultCredentialsError: if there are none.
    """
    from google.auth.credentials import AnonymousCredentials

    if access.emulator or access.no_auth:
        return AnonymousCredentials()
    import google.auth

    found, _ = google.auth.default(scopes=[_SCOPE])
    if not access.impersonate:
        return found
    from google.auth import impersonated_credentials

    *delegates, principal = access.impersonate.split(",")
    return impersonated_credentials.Credentials(
        source_credentials=found, target_principal=principal, delegates=delegates, target_scopes=[_SCOPE]
    )
