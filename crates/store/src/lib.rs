//! Multi-version rows in memory: the ordered index, records with their versions, secondary indexes, live snapshots,
//! reclamation and the memory limit. All of the house's `unsafe` is here.
//!
//! Read `record` first (what a row through time is), then `storage` (a table), `snapshot` and `reclaim` (what may go), and
//! `tree` for the index. Readers hold a [`Guard`] while they look at records and a [`Snapshot`] while they need a version to stay.

mod alive;
mod allocator;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod mapped;
mod memory;
mod reclaim;
mod record;
mod snapshot;
mod storage;
pub mod tree;
mod view;

pub use crossbeam_epoch::{Guard, pin};

pub use alive::{Alive, is_marked};
#[cfg(feature = "counting")]
pub use allocator::Counting;
#[cfg(feature = "mimalloc")]
pub use allocator::Mimalloc;
pub use allocator::{Metered, give_pages_back, keep_freed_pages};
pub use mapped::{BYTES as MAPPED_BYTES, MappedWords};
pub use memory::{Budget, Memory};
pub use reclaim::{Reclaimed, Store};
pub use record::{Holder, IndexEntry, NewVersion, Record, Version};
pub use snapshot::{Snapshot, Snapshots};
pub use storage::{CHANGING, IndexSpec, RETIRED, SecondaryIndex, Storage, entry_key};
pub use view::{Expired, Found, View};

/// Nothing that is retired from now on is freed. Shuttle's atomics may be touched only inside one of its executions, but the epoch
/// frees garbage wherever some thread happens to move it on: in another test's execution, or when a thread ends. Every test
/// under shuttle calls this first. That memory is freed, and not too early, is for the tests without shuttle and for the sanitizers.
#[cfg(feature = "shuttle")]
pub fn hold_the_epoch() {
    static HELD: std::sync::Once = std::sync::Once::new();
    HELD.call_once(|| {
        let (held, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _guard = pin();
            held.send(()).expect("the test waits");
            loop {
                std::thread::park();
            }
        });
        wait.recv().expect("the guard is held");
    });
}
