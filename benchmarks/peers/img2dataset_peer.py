"""Peer: img2dataset, which fetches images over HTTP from a local server.

The server is a separate process and does as little as possible per request, so the measurement is about the
tool and not about the server.
"""

from __future__ import annotations

import csv
import math
import os
import socketserver
import subprocess
import sys
from pathlib import Path

import common

THREADS = 16


class Server(socketserver.ThreadingTCPServer):
    """A threaded server whose queue is long enough for all clients.

    With the usual queue of 5, connections are dropped and retried a second later.
    """

    request_queue_size = 1024
    daemon_threads = True
    paths: list[str]


class Handler(socketserver.StreamRequestHandler):
    """Answers `GET /NUMBER.jpg` with the file of that number, in HTTP/1.0."""

    server: Server

    def handle(self) -> None:
        """Serves one request."""
        target = self.rfile.readline().split()[1]
        # Closing a socket with unread input would reset the connection.
        while self.rfile.readline().strip():
            pass
        number = int(target.strip(b"/").split(b".")[0])
        data = Path(self.server.paths[number]).read_bytes()
        head = f"HTTP/1.0 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
        self.wfile.write(head.encode() + data)


def serve(folder: Path) -> None:
    """Prints the port, and serves the images of a folder until the process is ended.

    Args:
      folder: Folder of class folders.
    """
    with Server(("127.0.0.1", 0), Handler) as server:
        server.paths = [path for path, _ in common.list_images(folder)]
        print(server.server_address[1], flush=True)
        server.serve_forever()


def convert(source: Path, output: Path, port: str) -> None:
    """Runs img2dataset.

    Args:
      source: Folder of class folders.
      output: Folder to write to.
      port: Port of the server.
    """
    from img2dataset import download

    images = common.list_images(source)
    url_list = output / "urls.csv"
    with url_list.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["url", "caption"])
        rows.writerows(
            [f"http://127.0.0.1:{port}/{number}.jpg", label] for number, (_, label) in enumerate(images)
        )
    # The tool works shard by shard: with fewer shards than processes, cores would be idle.
    # Hashes and EXIF are off, because no other competitor computes them.
    download(
        url_list=str(url_list),
        input_format="csv",
        url_col="url",
        caption_col="caption",
        output_folder=str(output / "shards"),
        output_format="webdataset",
        image_size=common.SIZE,
        resize_mode="center_crop",
        encode_format="jpg",
        encode_quality=common.QUALITY,
        processes_count=common.PROCESSES,
        thread_count=THREADS,
        number_sample_per_shard=math.ceil(len(images) / common.SHARDS),
        extract_exif=False,
        compute_hash=None,
        enable_wandb=False,
    )


def main() -> None:
    """Starts the server and runs the tool."""
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
        return
    source, output = common.parse_folders(__doc__)
    # Requests to this machine must not go through a proxy.
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1"
    # Otherwise each process would look for a newer release of that library, which would measure the network.
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    command = [sys.executable, __file__, "--serve", str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            convert(source, output, server.stdout.readline().strip())
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
