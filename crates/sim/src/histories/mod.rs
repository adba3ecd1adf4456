//! Small histories of a primary and its sites, each compared with an ideal: a model checker for the rules of sites (docs/sites.md).
//!
//! ```text
//! clients ─▶ Txn at a site ─▶ Node::committing ─▶ candidate ══▶ Node::certify_as ─▶ verdict ══▶ told when it is shown
//!                 ▲                                late, doubled, lost, asked for        │
//!                 └──── replay, a group at a time ◀══ log, doubled, with gaps ◀──────────┘         ideal: all rows at each position
//! ```
//! What decides is the product: stores, transactions, certification, numbers, replay and recovery are those of real nodes without threads. The
//! network, the clients and time are the history's, and a seed chooses. A history has two or three sites, two to four keys a table, and up to
//! nine transactions. So rare orders come often.
//!
//! The *ideal* is a list of states, one for each commit, made from what clients asked for and not from what nodes wrote.
//!
//! | rule | looked at |
//! |---|---|
//! | a statement sees the ideal at its snapshot, with its own transaction's changes | at each read |
//! | what a node shows is the ideal at that position | after some events, and at the end |
//! | a row that is replaced is the one that was seen, and was changed by no other since | at each commit |
//! | at SERIALIZABLE all that was read is the same just before the commit | at each commit |
//! | a row that was locked is the version that was locked; so is a value that was read and moved (REPEATABLE READ) | at each commit |
//! | a key that was absent is absent, and nothing came and went that the primary still knows of | at each commit |
//! | a guard holds, and a value stays above its bound, at the commit's position | at each commit |
//! | unique and foreign keys hold | in each state |
//! | a candidate is as old as the last change of rights, or newer | at each commit |
//! | a number commits once; what was refused, or given up, does not commit | at each commit |
//! | a client is told of a commit that its site shows | when it is told |
//! | a session does not go back | at each begin |
//! | a refusal has a reason: something that the transaction used has changed, or is held | at each refusal |
//!
//! | file | has |
//! |---|---|
//! | `tables` | tables, names of rows |
//! | `ideal` | the ideal |
//! | `bench` | the nodes, and what moves between them |
//! | `open` | a transaction of a client: its statements, and what it remembers of them |
//! | `history` | one history: the events, and the comparisons at commits |
//! | `run` | seeds, batches, reports |
//!
//! A batch of histories shares its nodes, since opening nodes takes longer than a history. Each has keys of its own.
//!
//! Left out on purpose: promotions, crashes of the primary, and weak durability, which the simulation has; waiting for locks (a client that
//! would wait gives up).

pub mod bench;
mod history;
mod ideal;
mod open;
pub mod run;
pub mod tables;
