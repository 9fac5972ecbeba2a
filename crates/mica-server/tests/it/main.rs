//! The server over real connections: TLS on a port of the system's choosing.

mod client;
mod connection;
mod drain;
mod fixture;
mod refusal;
mod websocket;
