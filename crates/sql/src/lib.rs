//! SQL over transactions: from a text to rows, in sessions.
//!
//! ```text
//! text ─ session/parse ─▶ tree ─ bind ─▶ logical plan ─ plan ─▶ physical plan ─ exec ─▶ rows
//!                                 │ names: catalog, types, functions             │ rows: txn, store
//! ```
//! Each stage has its own tree and its own room, and the arrows go one way: `bind` makes the plan of `logical` and knows no planner, `plan`
//! turns it into operators and knows no syntax, `exec` runs them and knows neither. `prepare` puts the stages together.
//!
//! `session` holds what a client has set, opened and prepared; it runs statements and repeats the ones that lost a race. `ddl` changes the
//! schema, `rules` compiles constraints and defaults for `txn`, `expr` evaluates expressions. `reading` says what a plan reads, for strong
//! reads at replicas. `engine` is the trait through which a session reaches its node; `cluster_status` is what a node says of its place in the cluster.
//!
//! `printed` makes the texts that the schema keeps. A prepared plan is kept with the version of the schema that it was made for, and made again when that is no longer current.
//!
//! Left out on purpose: the wire protocol and sockets (`server`), and the log (`node`).

pub(crate) mod bind;
pub mod catalog;
pub mod cluster_status;
pub mod ddl;
pub mod effect;
pub mod engine;
pub mod exec;
pub(crate) mod expr;
mod extensions;
pub mod functions;
pub(crate) mod logical;
pub mod plan;
pub mod prepare;
pub(crate) mod printed;
pub mod reading;
pub mod rules;
pub mod session;
pub mod types;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
