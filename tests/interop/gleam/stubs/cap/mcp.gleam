pub type ToolResult

pub type McpError
