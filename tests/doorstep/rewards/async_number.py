import asyncio
import re


async def correctness(completions, answer, **kwargs):
    async def judge(completion, wanted):
        await asyncio.sleep(0)
        found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", completion)
        return float(bool(found) and float(found[-1].replace(",", "")) == float(wanted))

    return await asyncio.gather(*(judge(c, a) for c, a in zip(completions, answer)))
