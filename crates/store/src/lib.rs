//! Multi-version rows in memory: the ordered index, records with their versions, secondary indexes, live snapshots,
//! reclamation and the memory limit. All of the house's `unsafe` is here.
//!
//! Read `record` first (what a row through time is), then `storage` (a table), `snapshot` and `reclaim` (what may go), and
//! `tree` for the index. Readers hold a [`Guard`] while they look at records and a [`Snapshot`] while they need a version to stay.

#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod memory;
mod reclaim;
mod record;
mod snapshot;
mod storage;
pub mod tree;
mod view;

pub use crossbeam_epoch::{Guard, pin};

pub use memory::Memory;
pub use reclaim::{Reclaimed, Store};
pub use record::{Holder, IndexEntry, NewVersion, Record, Version};
pub use snapshot::{Snapshot, Snapshots};
pub use storage::{CHANGING, IndexSpec, RETIRED, SecondaryIndex, Storage, entry_key};
pub use view::{Expired, Found, View};
