//! Workloads: what to run against a database, and how to judge what it answered.
//!
//! A workload is four things: *setup* (which tables, which first rows), *run* (operations and
//! parameters, drawn from a seed), *check* (does the outcome keep the promise?) and *metrics*. The
//! code here is pure: it has no clock, no socket and no thread, so the same generators feed the
//! embedded benchmark, the tests over the wire and, one day, the simulator.
//!
//! | module | run | check |
//! |---|---|---|
//! | [`list_append`] | random appends and reads of lists | black-box search for isolation anomalies |
//! | [`bank`] | transfers | the total never changes |
//! | [`hot`] | decrements of one row | acknowledged decrements are all there, and no others |
//! | [`registers`] | increments, reads by point, range and table | no read is older than what was acknowledged before it began |
//! | [`ycsb`] | point reads and read-writes over one table | - |
//! | [`tpcc`] | NewOrder and Payment | year-to-date sums agree, order ids are dense |
//!
//! The last two run over [`kv::KvTxn`], the smallest door to a transaction that they need.
//!
//! Left out on purpose: driving (threads, connections, retries, timing) belongs to whoever runs a
//! workload, and the other three TPC-C transactions, which no bar in the plans names.

pub mod bank;
pub mod hot;
pub mod kv;
pub mod list_append;
pub mod registers;
pub mod rng;
pub mod tpcc;
pub mod ycsb;
