"""Azure Blob Storage: where it is, and with what credentials."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import obstore.store

from shardwright.core.storage.faults import Service
from shardwright.core.storage.object_store import Buckets, ObjectStore, certificates, variable
from shardwright.schemas.errors import EngineError

#: Environment variables, of Azure's command line and of obstore.
_ACCOUNT = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
_ENDPOINT = ("AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
_KEY = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
#: Variables of identities that obstore finds itself: service principals, workloads and managed identities.
_IDENTITIES = ("AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_ENDPOINT", "AZURE_MSI_ENDPOINT")
#: Key of a connection string -> setting of obstore.
_OF_CONNECTION = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}


class AzureStore(ObjectStore):
    """`az://`."""

    paths = "az://"
    environment = ("AZURE_STORAGE_CONNECTION_STRING", *_ACCOUNT, *_ENDPOINT)
    service = Service(
        name="Azure",
        kind="container",
        no_bucket=frozenset(("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled")),
        bad_login=frozenset(
            ("AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation")
        ),
        login_advice=(
            "run `az login`, or set AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY or "
            "AZURE_STORAGE_SAS_TOKEN"
        ),
        certificates="REQUESTS_CA_BUNDLE",
    )
    other_names = re.compile(r"\\")  # Azure turns it into `/`
    name_rule = (
        "may have no empty folders, no `.` or `..` as a folder, no backslashes, and no control characters"
    )

    def connect(self, options: Mapping[str, Any]) -> Buckets:
        """Returns the containers for Beam's options, or for the environment."""
        connection = options.get("azure_connection_string") or ""
        url = options.get("blob_service_endpoint") or ""
        identity = options.get("azure_managed_identity_client_id") or ""
        if not connection and not url:
            connection = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
            account = variable(*_ACCOUNT)
            url = variable(*_ENDPOINT) or (account and f"https://{account}.blob.core.windows.net")
        if connection:
            settings = _of_connection(connection)
        elif url:
            settings = {**_of_url(url), **_credentials(url, identity)}
        else:
            raise EngineError(
                "No storage account is named for az://; set AZURE_STORAGE_ACCOUNT or "
                "AZURE_STORAGE_CONNECTION_STRING, or give --blob_service_endpoint."
            )
        client = {**certificates(), "allow_http": settings["endpoint"].startswith("http://")}
        return Buckets(obstore.store.AzureStore, settings, client)


def _of_connection(connection: str) -> dict[str, Any]:
    """Returns obstore's settings for a connection string.

    Raises:
      EngineError: If it is malformed.
    """
    parts = dict(part.split("=", 1) for part in connection.split(";") if "=" in part)
    settings = {name: parts[key] for key, name in _OF_CONNECTION.items() if parts.get(key)}
    if "account_name" in settings:
        suffix = parts.get("EndpointSuffix", "core.windows.net")
        protocol = parts.get("DefaultEndpointsProtocol", "https")
        settings.setdefault("endpoint", f"{protocol}://{settings['account_name']}.blob.{suffix}")
    if "endpoint" not in settings or not settings.keys() & {"account_key", "sas_key"}:
        raise EngineError(
            "The connection string for az:// is malformed; copy it from `az storage account "
            "show-connection-string`."
        )
    return {**_of_url(settings["endpoint"]), **settings}


def _of_url(url: str) -> dict[str, Any]:
    """Returns obstore's settings for the address of an account."""
    address = url.partition("?")[0].rstrip("/")
    host = address.partition("://")[2]
    return {"account_name": variable(*_ACCOUNT) or re.split(r"[.:/]", host)[0], "endpoint": address}


def _credentials(url: str, identity: str) -> dict[str, Any]:
    """Returns obstore's settings for the credentials; obstore itself finds identities."""
    if signature := url.partition("?")[2]:
        return {"sas_key": signature}
    if key := variable(*_KEY):
        return {"account_key": key}
    if signature := variable(*_SAS):
        return {"sas_key": signature.removeprefix("?")}
    if identity:
        return {"client_id": identity, "credential_type": "managed_identity"}
    folder = Path(os.environ.get("AZURE_CONFIG_DIR") or Path.home() / ".azure")
    is_logged_in = shutil.which("az") and (folder / "azureProfile.json").exists()
    return {"use_azure_cli": True} if is_logged_in and not variable(*_IDENTITIES) else {}
