"""Asks the price service over HTTP."""

import json
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from streamkit import RetriableError


class Prices:
    """Called with the name of a product, in several threads; with an asynchronous client, `__call__` would be `async`.

    An outage is repeated, and then ends the application, which goes on there when it is started again. A product without a price is
    an answer, not a failure.
    """

    def __init__(self, url: str):
        self.url = url
        self.opener = build_opener(ProxyHandler({}))  # no proxy: the service is near

    def __call__(self, product):
        try:
            with self.opener.open(f"{self.url}/prices/{quote(product, safe='')}", timeout=10) as answer:
                return json.load(answer)["cents"]
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise RetriableError(f"the price service answers {error.code}") from None
        except URLError as error:
            raise RetriableError(f"the price service at {self.url} does not answer: {error.reason}") from None
