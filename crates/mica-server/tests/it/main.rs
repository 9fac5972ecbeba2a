//! The server over real connections: TLS on a port of the system's choosing.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod access;
mod admission;
mod audit;
mod authz;
mod budgets;
mod certificates;
mod chain;
mod client;
mod connection;
mod conversion;
mod coverage;
mod custom;
mod drain;
mod egress;
mod encryption;
mod fairness;
mod fixture;
mod hook;
mod hostile;
mod isolation;
mod issuers;
mod limits;
mod lists;
mod moving;
mod objects;
mod openapi;
mod planes;
mod profiles;
mod proofs;
mod protocol;
mod rebase;
mod refusal;
mod scale;
mod tenancy;
mod tokens;
mod watches;
mod websocket;
mod wildcard;
mod wire;
mod workloads;
mod world;
mod writes;
