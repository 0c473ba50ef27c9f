import asyncio
from datetime import timedelta

from streamkit import RetriableError


def times(value, factor: int):
    return value * factor


def wanted(keys, values, least: int):
    return [value["count"] >= least for value in values]


class Stamped:
    def __init__(self, mark: str, within: timedelta):
        self.mark = f"{mark}{within.total_seconds():.0f}"

    def __call__(self, keys, values):
        return [{**value, "mark": f"{key}-{self.mark}"} for key, value in zip(keys, values, strict=True)]


class Prices:
    def __init__(self, prices: dict):
        self.prices = prices
        self.busy = {"coffee"}

    async def __call__(self, product):
        await asyncio.sleep(0)
        if product in self.busy:
            self.busy.remove(product)
            raise RetriableError("busy")
        if product not in self.prices:
            raise ValueError(f"{product} has no price")
        return self.prices[product]


def upper(products):
    return [product.upper() for product in products]


def letters(keys, values):
    return [list(value[:3]) for value in values]


class Counted:
    def init(self, context):
        self.store = context.store("spent")

    def process(self, records):
        found = []
        for record in records:
            count = (self.store.get(record.key) or 0) + 1
            self.store.put(record.key, count)
            found.append(record.replace(value=f"{record.value}{count}"))
        return found
