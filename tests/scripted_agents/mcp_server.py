"""An MCP server on stdin and stdout with one tool, `note`."""

import json
import sys
from typing import Any

TOOL = {"name": "note", "description": "Take a note.", "inputSchema": {"type": "object"}}

for line in sys.stdin:
    request = json.loads(line)
    answer: dict[str, Any] = {}
    if request["method"] == "initialize":
        answer = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        }
    elif request["method"] == "tools/list":
        answer = {"tools": [TOOL]}
    elif request["method"] == "tools/call":
        answer = {"content": [{"type": "text", "text": "noted"}]}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
