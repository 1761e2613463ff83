//! Agents over the Model Context Protocol: the built binary as a server, `rmcp`'s own client, and
//! the official Python SDK.

mod support;

#[path = "mcp/agent.rs"]
mod agent;
#[path = "mcp/calls.rs"]
mod calls;
#[path = "mcp/ends.rs"]
mod ends;
#[path = "mcp/failures.rs"]
mod failures;
#[path = "mcp/integrations.rs"]
mod integrations;
#[path = "mcp/lists.rs"]
mod lists;
#[path = "mcp/sdk.rs"]
mod sdk;
