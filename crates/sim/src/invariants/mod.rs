//! What must hold after every event; a file each.
//!
//! | file | invariant |
//! |---|---|
//! | `watermarks` | the inequalities of primary and replica; nobody shows what no primary has published |
//! | `snapshots` | what a node shows equals the model at that position, rows and index; nothing shown is taken back; held snapshots stay |
//! | `splits` | a split value is what the deltas of the history come to, and never below its bound; a guard holds at its commit |
//! | `sessions` | a session never goes back, whichever node it reads at |
//! | `reads` | a strong read at any node sees everything that was acknowledged before it arrived, and exactly the state of its timestamp |
//! | `ages` | as of the time that a replica names it shows everything that its primary had acknowledged |
//! | `holding` (beside the others) | a primary has every row as it was where it keeps snapshots for replicas |
//! | `durability` | what was acknowledged survives what its promise says |
//! | `terms` | no two terms acknowledge over the same time, except on a premise that was false, which is reported |

mod ages;
mod durability;
mod reads;
mod sessions;
mod snapshots;
mod splits;
mod terms;
mod watermarks;

pub use snapshots::Watched;
