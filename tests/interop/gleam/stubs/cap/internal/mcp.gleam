import cap/mcp
import cap/report

pub fn invoke(server: String, tool: String, arguments: report.Value) -> Result(mcp.ToolResult, mcp.McpError) {
  todo
}
