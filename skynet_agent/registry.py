"""The providers that need no more than a key, and the servers of one's own that everybody has at the same address.

A vendor is an entry here: where it is, which variables say that it is to be used, and how it differs from the others.
What its models can do and cost is in the catalogue. Each entry names the page its facts are from; where several say
the same, the vendor's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from skynet_agent.providers import ProviderRow
from skynet_agent.requests import ThinkingLevel

OWN_SERVER_TIMEOUT_S = 600.0
"""A model on a machine of one's own is loaded first, and reads a long prompt slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProvider:
    """A row, and how a gateway comes to have it.

    Variables of the environment enable a provider when they are surely meant for it: a key of its own, the address of
    its server, the project that its models are billed to. Those that other programs use too only fill in a provider
    that the configuration names.
    """

    row: ProviderRow
    models: tuple[str, ...] = ()
    """What it offers first; the first of them is used when only the provider is meant."""
    keys: tuple[str, ...] = ()
    """Variables that hold its key and enable it. The first that is set counts."""
    shared_keys: tuple[str, ...] = ()
    """Variables that hold its key, and are set for other reasons as well."""
    urls: tuple[str, ...] = ()
    """Variables with the address of a server of one's own. They enable it."""
    projects: tuple[str, ...] = ()
    """Variables with the project of a cloud. They enable it."""
    shared_projects: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    own_address: bool = False
    """Its address is everybody's own, so that its key may go to whatever address is configured."""
    source: str
    """The page these facts are from."""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def needs_key(self) -> bool:
        """Whether it is of no use without a key."""
        return bool(self.keys) and self.row.auth in ("bearer", "x-api-key", "api-key", "anthropic")

    @property
    def has_login(self) -> bool:
        """Whether ``skynet providers login`` gets its credentials."""
        return self.row.auth in ("copilot", "qwen")

    @property
    def variables(self) -> tuple[str, ...]:
        """Every variable that says something of it."""
        return (*self.keys, *self.shared_keys, *self.urls, *self.projects, *self.shared_projects, *self.regions)


_LOW_TO_HIGH: tuple[ThinkingLevel, ...] = ("low", "medium", "high")

_VENDORS = (
    KnownProvider(
        row=ProviderRow(
            name="anthropic",
            title="Anthropic",
            api="anthropic-messages",
            auth="anthropic",
            base_url="https://api.anthropic.com",
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN"),
        models=("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-fable-5-2"),
        source="https://platform.claude.com/docs/en/api/overview",
    ),
    KnownProvider(
        row=ProviderRow(
            name="openai",
            title="OpenAI",
            # its chat completions refuse tools to a model that thinks
            api="openai-responses",
            base_url="https://api.openai.com/v1",
            max_tokens_field="max_completion_tokens",
            supports_prompt_cache_key=True,
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("OPENAI_API_KEY",),
        models=("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-luna", "gpt-6-astra"),
        source="https://developers.openai.com/api/docs/models",
    ),
    KnownProvider(
        row=ProviderRow(
            name="gemini",
            title="Google Gemini",
            base_url="https://generativelanguage.googleapis.com/v1beta/openai",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        models=("gemini-4-argon", "gemini-3.8-flash", "gemini-3.5-flash-lite"),
        source="https://ai.google.dev/gemini-api/docs/openai",
    ),
    KnownProvider(
        row=ProviderRow(
            name="azure",
            title="Azure OpenAI",
            api="openai-responses",
            auth="api-key",
            base_url="{AZURE_OPENAI_ENDPOINT}/openai/v1",
            max_tokens_field="max_completion_tokens",
            supports_stream_options=False,
            supports_prompt_cache_key=True,
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("AZURE_OPENAI_API_KEY",),
        models=("gpt-6.1-sol", "gpt-6.1-terra"),  # deployments are called like their model unless somebody renames them
        own_address=True,
        source="https://learn.microsoft.com/en-us/azure/foundry/openai/api-version-lifecycle",
    ),
    KnownProvider(
        row=ProviderRow(
            name="bedrock",
            title="Amazon Bedrock",
            api="bedrock",
            auth="aws",
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        keys=("AWS_BEARER_TOKEN_BEDROCK",),
        regions=("AWS_REGION", "AWS_DEFAULT_REGION"),
        models=(
            "global.anthropic.claude-sonnet-5-5",
            "global.anthropic.claude-opus-5-5",
            "global.anthropic.claude-haiku-5-5",
        ),
        source="https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys-use.html",
    ),
    KnownProvider(
        row=ProviderRow(
            name="vertex", title="Google Vertex AI", api="vertex", auth="google", thinking_levels=("off", *_LOW_TO_HIGH)
        ),
        # what Vercel's AI SDK, LiteLLM and Anthropic's SDK read
        projects=("GOOGLE_VERTEX_PROJECT", "VERTEXAI_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID"),
        shared_projects=("GOOGLE_CLOUD_PROJECT",),
        regions=("GOOGLE_VERTEX_LOCATION", "VERTEXAI_LOCATION", "GOOGLE_CLOUD_LOCATION"),
        models=("gemini-4-argon", "gemini-3.8-flash", "claude-sonnet-5-5"),
        source="https://docs.cloud.google.com/vertex-ai/generative-ai/docs/start/gcp-auth",
    ),
    KnownProvider(
        row=ProviderRow(
            name="copilot",
            title="GitHub Copilot",
            auth="copilot",
            base_url="https://api.githubcopilot.com",
            thinking_field="",  # what its models take is told to those who are logged in alone
        ),
        keys=("COPILOT_GITHUB_TOKEN", "GITHUB_COPILOT_TOKEN"),
        models=("claude-sonnet-5.5", "gemini-4-argon", "claude-haiku-5.5"),
        source="https://docs.github.com/en/copilot/reference/ai-models/supported-models",
    ),
    KnownProvider(
        row=ProviderRow(
            name="xai",
            title="xAI",
            # its chat completions are deprecated
            api="openai-responses",
            base_url="https://api.x.ai/v1",
            supports_stream_options=False,
            supports_prompt_cache_key=True,
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("XAI_API_KEY",),
        models=("grok-4.7", "grok-4.3"),
        source="https://docs.x.ai/developers/model-capabilities/text/best-practices",
    ),
    KnownProvider(
        row=ProviderRow(
            name="mistral",
            title="Mistral AI",
            base_url="https://api.mistral.ai/v1",
            supports_stream_options=False,  # refuses fields it does not know; reports usage anyway
            supports_prompt_cache_key=True,
            thinking_levels=("off", "high"),
            tool_call_ids="nine",
        ),
        keys=("MISTRAL_API_KEY",),
        models=("mistral-large-4", "mistral-medium-latest", "mistral-small-latest"),
        source="https://docs.mistral.ai/api/",
    ),
    KnownProvider(
        row=ProviderRow(
            name="deepseek",
            title="DeepSeek",
            base_url="https://api.deepseek.com/v1",
            thinking_field="thinking_effort",
            thinking_levels=("off", "low", "high"),
            wants_thinking_back=True,
        ),
        keys=("DEEPSEEK_API_KEY",),
        models=("deepseek-flash", "deepseek-v4-pro"),
        source="https://api-docs.deepseek.com/guides/thinking_mode",
    ),
    KnownProvider(
        row=ProviderRow(
            name="moonshot",
            title="Moonshot AI (Kimi)",
            base_url="https://api.moonshot.ai/v1",
            supports_prompt_cache_key=True,
            thinking_field="thinking",
            thinking_levels=("off", *_LOW_TO_HIGH),
            wants_thinking_back=True,
        ),
        keys=("MOONSHOT_API_KEY",),
        models=("kimi-k3.1-pro", "kimi-k2.6"),
        source="https://platform.moonshot.ai/docs/api/chat",
    ),
    KnownProvider(
        row=ProviderRow(
            name="zai",
            title="Z.AI",
            base_url="https://api.z.ai/api/paas/v4",
            thinking_field="thinking_effort",
            thinking_levels=("off", "high"),
            wants_thinking_back=True,
        ),
        keys=("ZAI_API_KEY",),
        models=("glm-5.3", "glm-5.3-flash"),
        source="https://docs.z.ai/guides/capabilities/thinking",
    ),
    KnownProvider(
        row=ProviderRow(
            name="zhipu",
            title="Zhipu AI (China)",
            base_url="https://open.bigmodel.cn/api/paas/v4",
            catalogue="zai",
            thinking_field="thinking_effort",
            thinking_levels=("off", "high"),
            wants_thinking_back=True,
        ),
        keys=("ZHIPU_API_KEY",),
        models=("glm-5.3", "glm-5.3-flash"),
        source="https://docs.bigmodel.cn/cn/guide/develop/openai/introduction",
    ),
    KnownProvider(
        row=ProviderRow(
            name="minimax",
            title="MiniMax",
            # its chat completions put thinking into the text
            api="anthropic-messages",
            auth="x-api-key",
            base_url="https://api.minimax.io/anthropic",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("MINIMAX_API_KEY",),
        models=("MiniMax-M3.1-Flash", "MiniMax-M3"),
        source="https://platform.minimax.io/docs/api-reference/text-anthropic-api",
    ),
    KnownProvider(
        row=ProviderRow(
            name="dashscope",
            title="Alibaba DashScope",
            base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            thinking_field="enable_thinking",
            thinking_levels=("off", *_LOW_TO_HIGH),
            cache_marks=True,
        ),
        keys=("DASHSCOPE_API_KEY",),
        models=("qwen3.8-max", "qwen3.8-flash"),
        source="https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope",
    ),
    KnownProvider(
        row=ProviderRow(
            name="cohere",
            title="Cohere",
            base_url="https://api.cohere.ai/compatibility/v1",
            supports_stream_options=False,  # not among the fields it lists
            thinking_levels=("off", "high"),
        ),
        keys=("COHERE_API_KEY", "CO_API_KEY"),
        models=("command-a-plus-05-2026", "command-a-03-2025"),
        source="https://docs.cohere.com/docs/compatibility-api",
    ),
    KnownProvider(
        row=ProviderRow(
            name="openrouter",
            title="OpenRouter",
            base_url="https://openrouter.ai/api/v1",
            thinking_field="reasoning",
            thinking_levels=("off", "minimal", "low", "medium", "high", "xhigh"),
            cache_marks=True,
        ),
        keys=("OPENROUTER_API_KEY",),
        models=("openrouter/auto", "anthropic/claude-sonnet-5.5", "openai/gpt-6.1-sol", "google/gemini-4-argon"),
        source="https://openrouter.ai/docs/use-cases/reasoning-tokens",
    ),
    KnownProvider(
        row=ProviderRow(
            name="vercel",
            title="Vercel AI Gateway",
            base_url="https://ai-gateway.vercel.sh/v1",
            thinking_field="reasoning",
            thinking_levels=("off", "minimal", "low", "medium", "high", "xhigh"),
        ),
        keys=("AI_GATEWAY_API_KEY",),
        models=("anthropic/claude-sonnet-5.5", "openai/gpt-6.1-sol", "google/gemini-4-argon"),
        source="https://vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions",
    ),
    KnownProvider(
        row=ProviderRow(
            name="groq",
            title="Groq",
            base_url="https://api.groq.com/openai/v1",
            max_tokens_field="max_completion_tokens",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("GROQ_API_KEY",),
        models=("openai/gpt-oss-120b", "qwen/qwen3.8-27b"),
        source="https://console.groq.com/docs/api-reference",
    ),
    KnownProvider(
        row=ProviderRow(
            name="cerebras",
            title="Cerebras",
            base_url="https://api.cerebras.ai/v1",
            max_tokens_field="max_completion_tokens",
            supports_prompt_cache_key=True,
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("CEREBRAS_API_KEY",),
        models=("qwen-3.8-27b", "gpt-oss-120b"),
        source="https://inference-docs.cerebras.ai/api-reference/chat-completions",
    ),
    KnownProvider(
        row=ProviderRow(
            name="together",
            title="Together AI",
            base_url="https://api.together.ai/v1",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("TOGETHER_API_KEY", "TOGETHERAI_API_KEY"),
        models=("zai-org/GLM-5.3", "deepseek-ai/DeepSeek-V4.1-Flash", "moonshotai/Kimi-K3.1-Pro"),
        source="https://docs.together.ai/reference/chat-completions",
    ),
    KnownProvider(
        row=ProviderRow(
            name="fireworks",
            title="Fireworks AI",
            base_url="https://api.fireworks.ai/inference/v1",
            supports_prompt_cache_key=True,
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        keys=("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
        models=(
            "accounts/fireworks/models/glm-5p3",
            "accounts/fireworks/models/deepseek-v4p1-flash",
            "accounts/fireworks/models/kimi-k3p1-pro",
        ),
        source="https://docs.fireworks.ai/guides/reasoning",
    ),
    KnownProvider(
        row=ProviderRow(
            name="deepinfra",
            title="DeepInfra",
            base_url="https://api.deepinfra.com/v1/openai",
            supports_prompt_cache_key=True,
            thinking_levels=("off", "low", "medium", "high", "xhigh"),
        ),
        keys=("DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN"),
        models=("zai-org/GLM-5.2", "deepseek-ai/DeepSeek-V4.1-Flash", "moonshotai/Kimi-K3"),
        source="https://docs.deepinfra.com/chat/reasoning",
    ),
    KnownProvider(
        row=ProviderRow(
            name="nebius",
            title="Nebius Token Factory",
            base_url="https://api.tokenfactory.nebius.com/v1",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("NEBIUS_API_KEY",),
        models=("zai-org/GLM-5.3", "deepseek-ai/DeepSeek-V4.1-Flash"),
        source="https://docs.tokenfactory.nebius.com/api-reference/inference/create-chat-completion",
    ),
    KnownProvider(
        row=ProviderRow(
            name="baseten",
            title="Baseten",
            base_url="https://inference.baseten.co/v1",
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        keys=("BASETEN_API_KEY",),
        models=("zai-org/GLM-5.3", "deepseek-ai/DeepSeek-V4.1-Flash-1017"),
        source="https://docs.baseten.co/inference/model-apis/reasoning",
    ),
    KnownProvider(
        row=ProviderRow(
            name="novita",
            title="Novita AI",
            base_url="https://api.novita.ai/openai/v1",
            thinking_field="",  # its switch is documented for models of the past only
        ),
        keys=("NOVITA_API_KEY",),
        models=("zai-org/glm-5.3", "moonshotai/kimi-k3"),
        source="https://novita.ai/docs/api-reference/model-apis-llm-create-chat-completion",
    ),
    KnownProvider(
        row=ProviderRow(
            name="siliconflow",
            title="SiliconFlow",
            base_url="https://api.siliconflow.com/v1",
            thinking_field="enable_thinking",
            thinking_levels=("off", *_LOW_TO_HIGH),
            wants_thinking_back=True,
        ),
        keys=("SILICONFLOW_API_KEY",),
        models=("zai-org/GLM-5.3", "zai-org/GLM-5.3-Flash"),
        source="https://docs.siliconflow.com/en/api-reference/chat-completions/chat-completions",
    ),
    KnownProvider(
        row=ProviderRow(
            name="sambanova",
            title="SambaNova",
            base_url="https://api.sambanova.ai/v1",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("SAMBANOVA_API_KEY",),
        models=("MiniMax-M2.7", "gpt-oss-120b"),
        source="https://docs.sambanova.ai/cloud/api-reference/endpoints/chat",
    ),
    KnownProvider(
        row=ProviderRow(
            name="nvidia",
            title="NVIDIA NIM",
            base_url="https://integrate.api.nvidia.com/v1",
            thinking_field="",  # each model has a field of its own, and the others are refused
        ),
        keys=("NVIDIA_API_KEY", "NVIDIA_NIM_API_KEY"),
        models=("nvidia/nemotron-3-ultra-550b-a55b", "z-ai/glm-5.3-flash"),
        source="https://docs.api.nvidia.com/nim/reference/llm-apis",
    ),
    KnownProvider(
        row=ProviderRow(
            name="huggingface",
            title="Hugging Face Inference Providers",
            base_url="https://router.huggingface.co/v1",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("HUGGINGFACE_API_KEY",),
        shared_keys=("HF_TOKEN",),  # what downloads models is not meant to send anything there
        models=("zai-org/GLM-5.3", "deepseek-ai/DeepSeek-V4.1-Flash"),
        source="https://huggingface.co/docs/inference-providers/index",
    ),
    KnownProvider(
        row=ProviderRow(
            name="scaleway",
            title="Scaleway",
            base_url="https://api.scaleway.ai/v1",
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        keys=("SCALEWAY_API_KEY",),
        shared_keys=("SCW_SECRET_KEY",),  # of the whole cloud
        models=("qwen3.5-397b-a17b", "mistral-medium-3.5-128b"),
        source="https://www.scaleway.com/en/docs/generative-apis/how-to/query-reasoning-models/",
    ),
    KnownProvider(
        row=ProviderRow(
            name="ovhcloud",
            title="OVHcloud AI Endpoints",
            base_url="https://oai.endpoints.kepler.ai.cloud.ovh.net/v1",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("OVHCLOUD_API_KEY", "OVH_AI_ENDPOINTS_ACCESS_TOKEN"),
        models=("Qwen3.8-27B", "gpt-oss-120b"),
        source="https://www.ovhcloud.com/en/public-cloud/ai-endpoints/catalog/",
    ),
    KnownProvider(
        row=ProviderRow(
            name="venice",
            title="Venice",
            base_url="https://api.venice.ai/api/v1",
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        keys=("VENICE_API_KEY", "VENICE_AI_API_KEY"),
        models=("kimi-k3", "deepseek-v4-1-flash"),
        source="https://docs.venice.ai/api-reference/api-spec",
    ),
    KnownProvider(
        row=ProviderRow(
            name="chutes",
            title="Chutes",
            base_url="https://llm.chutes.ai/v1",
            thinking_field="",  # told in the model's chat template
        ),
        keys=("CHUTES_API_KEY",),
        models=("zai-org/GLM-5.2-TEE", "deepseek-ai/DeepSeek-V4-Flash-0731-TEE"),
        source="https://chutes.ai/docs/guides/reasoning-models",
    ),
    KnownProvider(
        row=ProviderRow(
            name="featherless", title="Featherless", base_url="https://api.featherless.ai/v1", thinking_field=""
        ),
        keys=("FEATHERLESS_API_KEY", "FEATHERLESS_AI_API_KEY"),
        models=("Qwen/Qwen3-32B",),
        source="https://featherless.ai/docs/completions",
    ),
    KnownProvider(
        row=ProviderRow(
            name="hyperbolic", title="Hyperbolic", base_url="https://api.hyperbolic.xyz/v1", thinking_field=""
        ),
        keys=("HYPERBOLIC_API_KEY",),
        models=("meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-235B-A22B"),
        source="https://docs.hyperbolic.xyz/docs/rest-api",
    ),
    KnownProvider(
        row=ProviderRow(name="lambda", title="Lambda", base_url="https://api.lambda.ai/v1", thinking_field=""),
        keys=("LAMBDA_API_KEY",),
        models=("llama-4-maverick-17b-128e-instruct-fp8", "llama3.3-70b-instruct-fp8"),
        source="https://docs.lambda.ai/public-cloud/lambda-inference-api/",
    ),
    KnownProvider(
        row=ProviderRow(
            name="github-models",
            title="GitHub Models",
            base_url="https://models.github.ai/inference",
            thinking_levels=_LOW_TO_HIGH,
        ),
        keys=("GITHUB_MODELS_TOKEN",),
        shared_keys=("GITHUB_TOKEN",),  # what every tool of a programmer has is not meant to send anything there
        models=("openai/gpt-4.1", "openai/gpt-4.1-mini"),
        source="https://docs.github.com/en/rest/models/inference",
    ),
    KnownProvider(
        row=ProviderRow(
            name="perplexity",
            title="Perplexity",
            base_url="https://api.perplexity.ai",
            supports_stream_options=False,  # not among the fields it lists; reports usage in every chunk
        ),
        keys=("PERPLEXITY_API_KEY", "PERPLEXITYAI_API_KEY"),
        models=("sonar-pro", "sonar", "sonar-reasoning-pro"),
        source="https://docs.perplexity.ai/api-reference/chat-completions",
    ),
    KnownProvider(
        row=ProviderRow(
            name="ai21",
            title="AI21",
            base_url="https://api.ai21.com/studio/v1",
            supports_stream_options=False,  # not among the fields it lists
            thinking_field="",
        ),
        keys=("AI21_API_KEY",),
        models=("jamba-large-1.7", "jamba-mini-1.7"),
        source="https://docs.ai21.com/reference/jamba-15-api-ref",
    ),
    KnownProvider(
        row=ProviderRow(
            name="qwen",
            title="Qwen (login)",
            auth="qwen",
            base_url="https://portal.qwen.ai/v1",
            thinking_field="enable_thinking",
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        models=("coder-model", "vision-model"),
        source="https://github.com/QwenLM/qwen-code/tree/main/packages/core/src/qwen",
    ),
)
"""In the order they are asked: who makes the strongest models, who runs other people's, and last those without tools
or of one's own account."""

_OWN_SERVERS = (
    KnownProvider(
        row=ProviderRow(
            name="ollama",
            title="Ollama",
            api="ollama",
            base_url="http://127.0.0.1:11434",
            local=True,
            read_timeout_s=OWN_SERVER_TIMEOUT_S,
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        urls=("OLLAMA_HOST",),
        shared_keys=("OLLAMA_API_KEY",),
        own_address=True,
        source="https://docs.ollama.com/api/introduction",
    ),
    KnownProvider(
        row=ProviderRow(
            name="lmstudio",
            title="LM Studio",
            base_url="http://127.0.0.1:1234/v1",
            local=True,
            read_timeout_s=OWN_SERVER_TIMEOUT_S,
            thinking_field="",
        ),
        urls=("LM_STUDIO_API_BASE",),
        shared_keys=("LM_STUDIO_API_KEY", "LMSTUDIO_API_KEY"),
        own_address=True,
        source="https://lmstudio.ai/docs/developer/openai-compat/chat-completions",
    ),
    KnownProvider(
        row=ProviderRow(
            name="llamacpp",
            title="llama.cpp",
            base_url="http://127.0.0.1:8080/v1",
            local=True,
            read_timeout_s=OWN_SERVER_TIMEOUT_S,
            thinking_field="",
        ),
        shared_keys=("LLAMA_API_KEY",),
        own_address=True,
        source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    ),
    KnownProvider(
        row=ProviderRow(
            name="vllm",
            title="vLLM",
            base_url="http://127.0.0.1:8000/v1",
            local=True,
            read_timeout_s=OWN_SERVER_TIMEOUT_S,
            thinking_levels=_LOW_TO_HIGH,
        ),
        urls=("HOSTED_VLLM_API_BASE",),
        shared_keys=("HOSTED_VLLM_API_KEY", "VLLM_API_KEY"),
        own_address=True,
        source="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
    ),
    KnownProvider(
        row=ProviderRow(
            name="litellm",
            title="LiteLLM",
            base_url="http://127.0.0.1:4000/v1",
            thinking_levels=("off", *_LOW_TO_HIGH),
        ),
        urls=("LITELLM_PROXY_API_BASE",),
        shared_keys=("LITELLM_PROXY_API_KEY",),
        own_address=True,
        source="https://docs.litellm.ai/docs/simple_proxy",
    ),
)


def _complete() -> tuple[KnownProvider, ...]:
    """Vendors are asked in their order, after everything that somebody set up himself, which has priority 0."""
    vendors = [
        replace(
            known,
            row=replace(
                known.row,
                env_key=next(iter(known.keys), ""),
                priority=-rank,
                unlisted_models=True,
                catalogue=known.row.catalogue or known.name,
                list_prices=not known.row.catalogue,
            ),
        )
        for rank, known in enumerate(_VENDORS, 1)
    ]
    return (*vendors, *(replace(known, row=replace(known.row, unlisted_models=True)) for known in _OWN_SERVERS))


REGISTRY = _complete()
"""Every provider that is known by name."""

KNOWN_PROVIDERS = tuple(known.row for known in REGISTRY)
"""Their rows. These list no models: the catalogue tells of them when a provider is in use."""

_BY_NAME = {known.name: known for known in REGISTRY}


def known_provider(name: str) -> KnownProvider | None:
    """The entry of that name."""
    return _BY_NAME.get(name)
