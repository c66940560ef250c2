"""Compute a speaker embedding from reference audio: mel spectrogram and ECAPA-TDNN.

Always float32, whatever the precision of the model: the network is small and runs once per voice.
Knows no files; the sample rate is always 24 kHz.

Source: Desplanques et al., "ECAPA-TDNN" (2020); mel scale of Slaney, "Auditory Toolbox" (1998);
spectrogram and sizes as in qwen-tts 0.1.1.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.model.config import SpeakerEncoderConfig
from voiceagent_tts.model.layers import Weights

FFT_SAMPLES = 1024
HOP_SAMPLES = 256
_PADDING = (FFT_SAMPLES - HOP_SAMPLES) // 2
_MEL_FLOOR = 1e-5
_LINEAR_MEL_HZ = 200 / 3
_LOG_FROM_HZ = 1000.0
_LOG_FROM_MEL = _LOG_FROM_HZ / _LINEAR_MEL_HZ
_LOG_MELS = 27 / math.log(6.4)
"""Mels per factor of e above `_LOG_FROM_HZ`; below, the scale is linear."""
_VARIANCE_FLOOR = 1e-12


class _Convolution(nn.Module):
    """Convolution with reflect padding that keeps the length, followed by ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = _conv(inputs, outputs, kernel, dilation)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(x))


class _Res2Net(nn.Module):
    """Res2Net block: each group of channels but the first also receives the previous output."""

    def __init__(self, channels: int, parts: int, kernel: int, dilation: int) -> None:
        super().__init__()
        width = channels // parts
        self.parts = parts
        self.blocks = nn.ModuleList(
            [_Convolution(width, width, kernel, dilation) for _ in range(parts - 1)]
        )

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = x.chunk(self.parts, dim=1)
        done = [first]
        for number, (block, part) in enumerate(zip(self.blocks, rest, strict=True)):
            done.append(block(part if number == 0 else part + done[-1]))
        return torch.cat(done, dim=1)


class _SqueezeExcitation(nn.Module):
    """Squeeze-and-excitation: weights each channel by a function of the channel means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = _conv(channels, squeezed), _conv(squeezed, channels)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=2, keepdim=True)
        return x * self.conv2(F.relu(self.conv1(mean))).sigmoid()


class _Block(nn.Module):
    """Convolution, Res2Net, convolution and squeeze-and-excitation, added to the input."""

    def __init__(self, config: SpeakerEncoderConfig, number: int) -> None:
        super().__init__()
        inputs, outputs = config.enc_channels[number - 1 : number + 1]
        self.tdnn1 = _Convolution(inputs, outputs)
        self.res2net_block = _Res2Net(
            outputs,
            config.enc_res2net_scale,
            config.enc_kernel_sizes[number],
            config.enc_dilations[number],
        )
        self.tdnn2 = _Convolution(outputs, outputs)
        self.se_block = _SqueezeExcitation(outputs, config.enc_se_channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x))))


class _AttentivePooling(nn.Module):
    """Attentive statistics pooling: weighted mean and deviation of each channel over time."""

    def __init__(self, channels: int, attention_channels: int) -> None:
        super().__init__()
        self.tdnn = _Convolution(3 * channels, attention_channels)
        self.conv = _conv(attention_channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        mean, deviation = _statistics(x, x.new_full((1,), 1 / x.shape[2]))
        context = torch.cat((x, mean.expand_as(x), deviation.expand_as(x)), dim=1)
        weights = self.conv(self.tdnn(context).tanh()).softmax(dim=2)
        return torch.cat(_statistics(x, weights), dim=1)


class SpeakerEncoder(nn.Module):
    """Computes speaker embeddings. Parameters have the checkpoint's names."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        channels, kernels, dilations = (
            config.enc_channels,
            config.enc_kernel_sizes,
            config.enc_dilations,
        )
        reaches = (d * (k - 1) // 2 for k, d in zip(kernels, dilations, strict=True))
        # Reflect padding needs more input than a kernel reaches.
        self.min_samples = (max(reaches) + 1) * HOP_SAMPLES
        first = _Convolution(config.mel_dim, channels[0], kernels[0], dilations[0])
        rest = [_Block(config, number) for number in range(1, len(channels) - 1)]
        self.blocks = nn.ModuleList([first, *rest])
        self.mfa = _Convolution(channels[-1], channels[-1], kernels[-1], dilations[-1])
        self.asp = _AttentivePooling(channels[-1], config.enc_attention_channels)
        self.fc = _conv(2 * channels[-1], config.enc_dim)
        self.window = nn.Buffer(torch.hann_window(FFT_SAMPLES), persistent=False)
        filters = _mel_filters(config.mel_dim).to(self.window)
        self.filters = nn.Buffer(filters, persistent=False)

    @torch.inference_mode()
    def embed(self, samples: Tensor) -> Tensor:
        """Compute the embedding of mono audio: [S] float32 in [-1, 1], 24 kHz -> [D] float32.

        Raises:
            InvalidRequestError: the audio is shorter than `min_samples`.
        """
        if len(samples) < self.min_samples:
            raise InvalidRequestError(
                f"reference audio: expected at least {self.min_samples} samples at 24 kHz, "
                f"got {len(samples)}; try a longer recording",
                code=ErrorCode.INVALID_PARAM,
            )
        x = self.mel_spectrogram(samples.to(self.window)[None])
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        x = self.mfa(torch.cat(outputs[1:], dim=1))
        return self.fc(self.asp(x))[0, :, 0]

    def mel_spectrogram(self, samples: Tensor) -> Tensor:
        """Compute log-mel magnitudes: [B, S] -> [B, M, S / 256]."""
        mirrored = F.pad(samples[:, None], (_PADDING, _PADDING), mode="reflect")[:, 0]
        spectrum = torch.stft(
            mirrored,
            FFT_SAMPLES,
            HOP_SAMPLES,
            window=self.window,
            center=False,
            return_complex=True,
        )
        magnitudes = (spectrum.real**2 + spectrum.imag**2 + 1e-9).sqrt()
        return (self.filters @ magnitudes).clamp(min=_MEL_FLOOR).log()

    def weights(self) -> Weights:
        """Yield all tensors under the checkpoint's names."""
        for name, parameter in self.named_parameters():
            yield f"speaker_encoder.{name}", parameter


def _mel_filters(bands: int) -> Tensor:
    """Return triangular filters of equal area, [M, bins] float64, from 0 Hz to half the rate."""
    # On the CPU, also while a model is built on a device without float64.
    kind: Any = {"dtype": torch.float64, "device": "cpu"}
    rising_hz, centre_hz, falling_hz = _mel_to_hz(
        torch.linspace(0, _hz_to_mel(SAMPLE_RATE_HZ / 2), bands + 2, **kind)
    ).unfold(0, bands, 1)[..., None]
    bin_hz = torch.linspace(0, SAMPLE_RATE_HZ / 2, FFT_SAMPLES // 2 + 1, **kind)
    rising = (bin_hz - rising_hz) / (centre_hz - rising_hz)
    falling = (falling_hz - bin_hz) / (falling_hz - centre_hz)
    heights = torch.minimum(rising, falling).clamp(min=0)
    return heights * (2 / (falling_hz - rising_hz))


def _hz_to_mel(hz: float) -> float:
    return _LOG_FROM_MEL + _LOG_MELS * math.log(hz / _LOG_FROM_HZ)


def _mel_to_hz(mels: Tensor) -> Tensor:
    logarithmic = _LOG_FROM_HZ * ((mels - _LOG_FROM_MEL) / _LOG_MELS).exp()
    return torch.where(mels < _LOG_FROM_MEL, mels * _LINEAR_MEL_HZ, logarithmic)


def _conv(inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> nn.Conv1d:
    return nn.Conv1d(
        inputs, outputs, kernel, dilation=dilation, padding="same", padding_mode="reflect"
    )


def _statistics(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted mean and deviation over time, each [B, C, 1]."""
    mean = (weights * x).sum(dim=2, keepdim=True)
    variance = (weights * (x - mean) ** 2).sum(dim=2, keepdim=True)
    return mean, variance.clamp(min=_VARIANCE_FLOOR).sqrt()
