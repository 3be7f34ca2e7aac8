"""Data-parallel training: every rank computes the gradient of its share of each batch, an all_reduce sums them up.

    hocket run -n 4 --hosts 2 python examples/digits.py

A network with one hidden layer learns scikit-learn's handwritten digits (bundled, nothing is downloaded). At the end
rank 0 repeats the training alone, on whole batches: the weights must agree up to rounding. The exit status is 1 if they
do not, or if the ranks' own weights are not the same to the last bit.
"""

import argparse
import asyncio
import hashlib
import sys
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import hocket

Array = npt.NDArray[np.float64]

HIDDEN, CLASSES, PIXELS = 64, 10, 64
IMAGES, BATCH, RATE, TEST = 1797, 64, 0.4, 360
ROUNDING = 1e-9
"""Largest difference of weights that counts as rounding. Sums in another order differ by about 1e-15 a step."""


@dataclass
class Data:
    """Images as float64[n, 64] in 0..1 and labels as int64[n], the last `TEST` of them kept for the test."""

    images: Array
    labels: npt.NDArray[np.int64]

    @property
    def trained(self) -> int:
        """Number of images to learn from."""
        return len(self.images) - TEST


class Network:
    """64 pixels -> 64 hidden units -> 10 classes. All weights are views of one flat array, and so are the gradients:
    one all_reduce serves the whole network.
    """

    def __init__(self, seed: int) -> None:
        shapes = (PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)
        sizes = [int(np.prod(shape)) for shape in shapes]
        self.weights, self.gradient = np.zeros(sum(sizes)), np.zeros(sum(sizes))
        cuts = np.cumsum(sizes)[:-1]
        self.w1, self.b1, self.w2, self.b2 = _cut(self.weights, cuts, shapes)
        self.d_w1, self.d_b1, self.d_w2, self.d_b2 = _cut(self.gradient, cuts, shapes)
        rng = np.random.default_rng(seed)
        self.w1[...] = rng.normal(0, PIXELS**-0.5, self.w1.shape)
        self.w2[...] = rng.normal(0, HIDDEN**-0.5, self.w2.shape)

    def logits(self, images: Array) -> tuple[Array, Array]:
        """The hidden layer and what stands before the softmax."""
        hidden = np.maximum(images @ self.w1 + self.b1, 0.0)
        return hidden, hidden @ self.w2 + self.b2

    def learn(self, images: Array, labels: npt.NDArray[np.int64], batch: int) -> float:
        """Fills `gradient` with these images' share of a batch of ``batch`` images. Returns their share of the loss."""
        hidden, logits = self.logits(images)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances = shifted / shifted.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(chances[rows, labels]).sum() / batch
        chances[rows, labels] -= 1.0
        d_logits = chances / batch
        d_hidden = (d_logits @ self.w2.T) * (hidden > 0)
        self.d_w2[...], self.d_b2[...] = hidden.T @ d_logits, d_logits.sum(axis=0)
        self.d_w1[...], self.d_b1[...] = images.T @ d_hidden, d_hidden.sum(axis=0)
        return float(loss)

    def step(self, epoch: int) -> None:
        """One step down the gradient, smaller from epoch to epoch."""
        self.weights -= RATE / epoch**0.5 * self.gradient

    def accuracy(self, data: Data) -> float:
        """Share of the test images that are told right."""
        _, logits = self.logits(data.images[-TEST:])
        return float((logits.argmax(axis=1) == data.labels[-TEST:]).mean())


def _cut(flat: Array, cuts: npt.NDArray[np.int64], shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    return [part.reshape(shape) for part, shape in zip(np.split(flat, cuts), shapes, strict=True)]


async def load(client: hocket.Client) -> Data:
    """The digits, in an order of our own. Rank 0 reads them, the others get them from it."""
    data = Data(np.zeros((IMAGES, PIXELS)), np.zeros(IMAGES, np.int64))
    if client.rank == 0:
        from sklearn.datasets import load_digits  # takes a while to import, so only one rank does

        digits = load_digits()
        order = np.random.default_rng(0).permutation(IMAGES)
        data = Data(digits.data[order] / 16.0, digits.target[order].astype(np.int64))
    await client.broadcast(data.images, src=0)
    await client.broadcast(data.labels, src=0)
    return data


def batches(data: Data, epoch: int) -> list[npt.NDArray[np.int64]]:
    """The batches of one epoch as indices, the same on every rank."""
    order = np.random.default_rng(epoch).permutation(data.trained)
    return np.split(order, range(BATCH, len(order), BATCH))


async def train(client: hocket.Client, network: Network, data: Data, epochs: int) -> list[float]:
    """Trains, and returns how long each all_reduce took (seconds), waiting for the slowest rank included."""
    took: list[float] = []
    for epoch in range(1, epochs + 1):
        loss = np.zeros(1)
        parts = batches(data, epoch)
        for batch in parts:
            mine = batch[client.rank :: client.size]
            loss += network.learn(data.images[mine], data.labels[mine], len(batch))
            begun = time.perf_counter()
            await client.all_reduce(network.gradient)
            took.append(time.perf_counter() - begun)
            network.step(epoch)
        await client.reduce(loss, dst=0)
        if client.rank == 0:
            text = f"epoch {epoch:2d}  loss {loss[0] / len(parts):.4f}  test accuracy {network.accuracy(data):.1%}"
            print(text, flush=True)
    return took


def train_alone(network: Network, data: Data, epochs: int) -> None:
    """The same training in one process, on whole batches."""
    for epoch in range(1, epochs + 1):
        for batch in batches(data, epoch):
            network.learn(data.images[batch], data.labels[batch], len(batch))
            network.step(epoch)


def report(network: Network, took: list[float], whole_s: float) -> None:
    """What rank 0 says about the time: figures of this run on this machine."""
    calls_us = np.array(took) * 1e6
    print(f"\ntraining took {whole_s:.2f} s on rank 0, {calls_us.sum() / 1e6 / whole_s:.0%} of it in collectives:")
    size = f"{network.gradient.nbytes / 1024:.0f} KiB"
    print(f"  {len(took)} all_reduce of {size}: median {np.median(calls_us):.0f} us, slowest {calls_us.max():.0f} us")


def compare(network: Network, data: Data, epochs: int) -> bool:
    """Repeats the training in this process alone, and says whether the weights agree."""
    alone = Network(seed=1)
    train_alone(alone, data, epochs)
    difference = float(np.abs(network.weights - alone.weights).max())
    agrees = difference <= ROUNDING
    print(f"\none process alone, same batches: test accuracy {alone.accuracy(data):.1%}")
    print(f"largest difference of a weight: {difference:.1e} ({'rounding' if agrees else 'NOT rounding'})", flush=True)
    return agrees


async def main(epochs: int) -> int:
    """One rank. Returns the exit status."""
    network = Network(seed=1)
    async with hocket.connect() as client:
        where = await client.all_gather_object(None, client.host)
        data = await load(client)
        if client.rank == 0:
            print(", ".join(f"rank {rank} on {host}" for rank, host in enumerate(where)))
            print(f"{data.trained} images to learn from, {TEST} to test; {len(network.weights)} weights\n", flush=True)
        begun = time.perf_counter()
        took = await train(client, network, data, epochs)
        whole_s = time.perf_counter() - begun
        digest = hashlib.sha256(network.weights.tobytes()).hexdigest()
        same = len(set(await client.all_gather_object(None, digest))) == 1
        fine = [False]
        if client.rank == 0:
            report(network, took, whole_s)
            fine = [compare(network, data, epochs) and same]
            print(f"weights of all {client.size} ranks: {'the same to the last bit' if same else 'NOT THE SAME'}")
        await client.broadcast_object_list(fine, src=0)
        return 0 if fine[0] else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains a classifier of digits, data-parallel.")
    parser.add_argument("--epochs", type=int, default=20)
    sys.exit(asyncio.run(main(parser.parse_args().epochs)))
