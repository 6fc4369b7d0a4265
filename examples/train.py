# SPDX-License-Identifier: Apache-2.0
"""Train a tumour-or-normal classifier on all ranks.

    python3 -m twill.run -n 4 examples/train.py [wdbc.csv] [EPOCHS]

Every mini-batch is divided among the ranks, so that any number of them computes the same model. A gradient set sums the
gradients during the backward pass and updates the parameters."""
import os
import sys
import numpy as np
import twill

BATCH, HIDDEN, RATE, SEED = 64, 16, 0.1, 1


def load(path: str, random: np.random.Generator) -> tuple:
    """Return the standardised features and the labels of the training samples, then those of the held-out samples."""
    table = random.permutation(np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32))
    features, labels = table[:, :-1], table[:, -1]
    train = len(table) * 4 // 5
    features = (features - features[:train].mean(0)) / features[:train].std(0)
    return features[:train], labels[:train], features[train:], labels[train:]


class Network:
    """A network with a hidden layer of tanh and a logistic output. Its gradient set has the parameters and gradients."""

    def __init__(self, comm: twill.Communicator, inputs: int, random: np.random.Generator) -> None:
        self.set = twill.GradientSet(comm, op=twill.SUM)
        shapes = {"hidden.weights": (inputs, HIDDEN), "hidden.biases": (HIDDEN,), "output.weights": (HIDDEN,),
                  "output.bias": (1,)}
        self.tensors = [self.set.add(name, shape) for name, shape in shapes.items()]
        self.set.set_optimizer("sgd", rate=RATE)
        self.set.commit()
        for tensor in self.tensors[::2]:  # all ranks draw the same values
            tensor.parameters[...] = random.uniform(-1, 1, tensor.shape) * np.sqrt(6 / (sum(tensor.shape) + HIDDEN))

    def forward(self, x: np.ndarray) -> tuple:
        """Return the hidden units and the logits."""
        weights, biases, output, bias = (tensor.parameters for tensor in self.tensors)
        units = np.tanh(x @ weights + biases)
        return units, units @ output + bias

    def step(self, x: np.ndarray, y: np.ndarray, samples: int) -> float:
        """Train on this rank's part of a mini-batch that has `samples` samples. Return the sum of its losses."""
        weights, biases, output, bias = self.tensors
        units, logits = self.forward(x)
        errors = (1 / (1 + np.exp(-logits)) - y) / samples
        output.gradient[...], bias.gradient[...] = errors @ units, errors.sum()
        delta = np.outer(errors, output.parameters) * (1 - units * units)
        bias.ready()  # from here on the set may reduce the output's gradients
        output.ready()
        weights.gradient[...], biases.gradient[...] = x.T @ delta, delta.sum(0)
        biases.ready()
        weights.ready()
        self.set.wait_all()
        return float(np.logaddexp(0, np.where(y > 0, -logits, logits)).sum())


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "data", "wdbc.csv")
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    random = np.random.default_rng(SEED)
    with twill.init() as comm:
        x, y, held_out, labels = load(path, random)
        network = Network(comm, x.shape[1], random)
        for epoch in range(1, epochs + 1):
            loss, order = 0.0, random.permutation(len(x))
            for batch in np.split(order, range(BATCH, len(x), BATCH)):
                mine = batch[comm.rank::comm.size]
                loss += network.step(x[mine], y[mine], len(batch))
            if epoch % max(epochs // 5, 1) == 0 and (mean := comm.allreduce(loss) / len(x)) and comm.rank == 0:
                print(f"epoch {epoch:4}  loss {mean:.6f}")
        right = ((network.forward(held_out)[1] > 0) == (labels > 0)).mean()
        network.set.free()
        if comm.rank == 0:
            print(f"{100 * right:.1f}% of {len(labels)} held-out samples are right, with {comm.size} ranks")


if __name__ == "__main__":
    main()
