//! The one door outside: clock, randomness, disk, spawning, and the synchronisation shim.
//!
//! Every crate from here up to `node` takes what it needs of the world from here, as a small trait, so that a simulator can hand
//! in its own and so that a test can make the disk lie. [`Env`] bundles one of each; [`Env::os`] is the real one.
//!
//! | what | trait | real | for tests |
//! |---|---|---|---|
//! | time | [`Clock`] | [`OsClock`] | [`ManualClock`] |
//! | chance | [`Random`] | [`OsRandom`] | [`SeededRandom`] |
//! | disk | [`Disk`], [`DiskFile`] | [`OsDisk`] | [`MemDisk`] (power cuts), [`FaultyDisk`] (errors around any disk) |
//! | threads | [`Spawn`] | [`OsSpawn`] | the simulator's |
//!
//! [`Overlay`] is a disk over another one that keeps all changes to itself: what a start would do is seen without doing it.
//! [`fault`] is different: named points inside the running process at which a crash test stops it. [`turns`] is what a thread
//! of a server tells the session that runs on it.
//!
//! Left out on purpose: the network. The crates that decide take messages and return messages; sockets are `server`'s, and `sim` has
//! a network of its own.

pub mod clock;
pub mod disk;
pub mod fault;
pub mod faulty_disk;
pub mod mem_disk;
pub mod os_disk;
pub mod overlay;
pub mod random;
pub mod say;
pub mod spawn;
pub mod sync;
pub mod turns;

pub use clock::{Clock, ManualClock, OsClock};
pub use disk::{DirLock, Disk, DiskFile, OpenMode};
pub use faulty_disk::{Action, Fault, FaultyDisk, Op};
pub use mem_disk::{MemDisk, PowerCut};
pub use os_disk::OsDisk;
pub use overlay::Overlay;
pub use random::{OsRandom, Random, SeededRandom};
pub use spawn::{JoinHandle, OsSpawn, Spawn};

use std::sync::Arc;

/// One of each: what a node takes of the world. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Time, monotonic and civil.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Arc<dyn Random>,
    /// Files.
    pub disk: Arc<dyn Disk>,
    /// Threads.
    pub spawn: Arc<dyn Spawn>,
}

impl Env {
    /// The operating system's.
    pub fn os() -> Env {
        Env {
            clock: Arc::new(OsClock::new()),
            random: Arc::new(OsRandom),
            disk: Arc::new(OsDisk),
            spawn: Arc::new(OsSpawn),
        }
    }

    /// The same surroundings with another disk.
    pub fn with_disk(mut self, disk: Arc<dyn Disk>) -> Env {
        self.disk = disk;
        self
    }
}
