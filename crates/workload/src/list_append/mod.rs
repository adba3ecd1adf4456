//! List-append: transactions that append unique values to lists and read whole lists.
//!
//! After Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental
//! Observations" (VLDB 2020). A list names its own history: who reads `[1, 4, 2]` knows that 1, 4
//! and 2 were appended in this order and that nothing else was. So the order of versions need
//! not be guessed, and the dependencies between transactions follow from the reads alone:
//!
//! ```text
//!   ww   T1's append comes just before T2's in some list
//!   wr   T2 read a list that ends with T1's append
//!   rw   T1 read a list, T2 made the next append to it
//!   rt   T1 was answered before T2 began (real time)
//!   site the same, where both ran at one site
//! ```
//!
//! | module | what |
//! |---|---|
//! | `history` | what clients saw: transactions, their intervals and outcomes |
//! | `generate` | random transactions over a sliding window of keys |
//! | `infer` | version orders, direct anomalies (G1a, G1b, ...) and edges from a history |
//! | `graph` | strongly connected components, shortest cycles by class |
//! | `check` | puts them together and says which anomalies a level forbids |
//!
//! Outcomes that nobody knows stay unknown: a transaction whose COMMIT was never answered counts
//! as committed only if somebody read one of its appends.
//!
//! Left out on purpose: other data types (registers, counters, sets), whose histories say less.

mod check;
mod generate;
mod graph;
mod history;
mod infer;

pub use check::{Anomaly, Class, Level, Report, check};
pub use generate::{Generator, Plan, Shape};
pub use graph::{Cycle, Kind};
pub use history::{Key, Op, Outcome, Txn, Value};
