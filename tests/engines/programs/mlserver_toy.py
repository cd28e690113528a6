"""A model for MLServer that answers in four pieces."""

import asyncio

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceResponse


class Toy(MLModel):
    """Answers every prompt alike."""

    async def load(self):
        return True

    async def predict(self, payload):
        return self._answer("whole")

    async def predict_stream(self, payloads):
        async for _ in payloads:
            pass
        for number in range(4):
            await asyncio.sleep(0.01)
            yield self._answer(f"piece {number} ")

    def _answer(self, text):
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("text", [text])])
