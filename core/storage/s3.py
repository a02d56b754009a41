"""Amazon S3 and compatible storages: where they are, and with what credentials."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import obstore.store

from shardwright.core.storage import object_store
from shardwright.core.storage.faults import Service
from shardwright.schemas.errors import EngineError

#: Setting of obstore -> its name in the files of Amazon's tools.
_OF_PROFILE = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}
#: Setting of obstore -> Beam's option.
_OF_OPTIONS = {
    "access_key_id": "s3_access_key_id",
    "secret_access_key": "s3_secret_access_key",
    "session_token": "s3_session_token",
    "region": "s3_region_name",
    "aws_endpoint_url_s3": "s3_endpoint_url",
}
#: Settings of a profile whose credentials Amazon's command line gets for us.
_LOGINS = ("sso_session", "sso_start_url", "role_arn", "login_session")
_COMMAND_SECONDS = 60
#: Errors of reading printed credentials that have another form.
_WRONG_FORM = (AttributeError, LookupError, TypeError, ValueError)
#: How long before their end credentials are renewed.
_RENEWAL = timedelta(minutes=6)


class S3Store(object_store.ObjectStore):
    """`s3://`."""

    paths = "s3://"
    environment = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    service = Service(
        name="S3",
        kind="bucket",
        no_bucket=frozenset(("NoSuchBucket",)),
        bad_login=frozenset(("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")),
        login_advice="run `aws configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        certificates="AWS_CA_BUNDLE",
    )

    def connect(self, options: Mapping[str, Any]) -> object_store.Buckets:
        """Returns the buckets for Beam's options, the environment, or a profile, in this order.

        obstore itself reads the environment, and asks for the credentials of containers and machines.
        """
        profile = _profile()
        settings: dict[str, Any] = {}
        if "region" in profile and not object_store.variable("AWS_REGION", "AWS_DEFAULT_REGION"):
            settings["region"] = profile["region"]
        of_options = {key: options[name] for key, name in _OF_OPTIONS.items() if options.get(name)}
        client: dict[str, Any] = object_store.certificates(["AWS_CA_BUNDLE"])
        verify = options.get("s3_verify")
        if str(verify).lower() == "false":
            client = {"allow_invalid_certificates": True}
        elif verify is not None and str(verify).lower() != "true":
            client = {"root_certificate": object_store.read_certificates(verify, "--s3_verify")}
        if options.get("s3_disable_ssl"):
            settings["aws_endpoint_url_s3"] = "http://s3.amazonaws.com"
        if "access_key_id" not in of_options and not os.environ.get("AWS_ACCESS_KEY_ID"):
            settings |= _credentials(profile)
        settings |= of_options
        endpoint = settings.get("aws_endpoint_url_s3") or object_store.variable(
            "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"
        )
        client["allow_http"] = endpoint.startswith("http://")
        return object_store.Buckets(obstore.store.S3Store, {**settings, "disable_bulk_delete": True}, client)


def _profile() -> dict[str, str]:
    """Returns the profile that Amazon's tools would use, with its name; empty if it does not exist."""
    name = object_store.variable("AWS_PROFILE", "AWS_DEFAULT_PROFILE") or "default"
    files, folder = configparser.ConfigParser(interpolation=None), Path.home() / ".aws"
    config = os.environ.get("AWS_CONFIG_FILE") or folder / "config"
    files.read([config, os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or folder / "credentials"])
    sections = [files[item] for item in (f"profile {name}", name) if files.has_section(item)]
    values = {key: value for section in sections for key, value in section.items()}
    return {"name": name, **values} if sections else {}


def _credentials(profile: Mapping[str, str]) -> dict[str, Any]:
    """Returns obstore's settings for the credentials of a profile; empty if it has none."""
    keys = {key: profile[name] for key, name in _OF_PROFILE.items() if name in profile}
    if keys and "role_arn" not in profile:  # else they only belong to an account that may assume the role
        return keys
    if "credential_process" in profile:
        return {"credential_provider": _PrintedCredentials(shlex.split(profile["credential_process"]))}
    if any(name in profile for name in _LOGINS):
        export = ["aws", "configure", "export-credentials", "--format", "process"]
        return {"credential_provider": _PrintedCredentials([*export, "--profile", profile["name"]])}
    if not profile and (name := object_store.variable("AWS_PROFILE", "AWS_DEFAULT_PROFILE")):
        raise EngineError(
            f"There is no profile {name} for s3:// in ~/.aws/credentials or ~/.aws/config; "
            "correct AWS_PROFILE."
        )
    return {}


class _PrintedCredentials:
    """Credentials that a command prints, as the setting `credential_process` of Amazon's tools describes."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._credentials = self._run_command()

    def __call__(self) -> dict[str, Any]:
        """Returns the credentials; obstore asks again shortly before they end."""
        expires_at = self._credentials["expires_at"]
        if expires_at and datetime.now(UTC) > expires_at - _RENEWAL:
            self._credentials = self._run_command()
        return self._credentials

    def _run_command(self) -> dict[str, Any]:
        try:
            process = subprocess.run(self._command, capture_output=True, timeout=_COMMAND_SECONDS, check=True)
            printed = json.loads(process.stdout)
            expiration = printed.get("Expiration")
            return {
                "access_key_id": printed["AccessKeyId"],
                "secret_access_key": printed["SecretAccessKey"],
                "token": printed.get("SessionToken"),
                "expires_at": datetime.fromisoformat(expiration).astimezone(UTC) if expiration else None,
            }
        except (OSError, subprocess.SubprocessError, *_WRONG_FORM) as error:
            raise EngineError(
                f"The credentials for s3:// could not be had: `{shlex.join(self._command)}` failed "
                f"({type(error).__name__}); run it yourself, log in with `aws sso login`, or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            ) from error
