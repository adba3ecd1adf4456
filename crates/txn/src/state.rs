//! The parts of a transaction's state, each with what it is about. They know nothing of one another.
//!
//! | part | is about |
//! |---|---|
//! | [`OwnView`] | the schema that the transaction sees, with its own changes |
//! | [`Reads`] | what it has read, and the snapshot under it |
//! | [`Standing`] | where its next snapshot stands, and what keeps it from moving |
//! | [`References`] | foreign keys, and unique keys that are DEFERRABLE, which are still to be asked |
//! | [`OwnLocks`] | locks held, and the one that is waited for |
//! | [`Statement`] | the statement that runs, or the last one |
//! | [`Courtesy`] | what it shows other transactions, and what it does for them |
//! | [`Escrowed`] | reservations of split values |
//!
//! Left out on purpose: the rules. Each part is changed by the module of its name.

use base::{Position, RelId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::{Snapshot, View};

use crate::announced::Announced;
use crate::cascades::Cascades;
use crate::handle::{Catalog, TableHandle};
use crate::holds::RemoteSnapshot;
use crate::locks::{LockMode, LockName, LockWait, TxnId};
use crate::own_schema::OwnSchema;
use crate::probe::{Deferred, FkProbe, Later, NewKey, Takes};
use crate::range::{RangeRead, Spared};
use crate::split::escrow::{Hold as Reserved, ValueName};
use crate::temp::Temp;
use crate::used::Used;
use crate::uses::OwnUses;

/// Waits of a transaction for others' changes at most.
pub(crate) const COURTESY: u8 = 16;

/// Why the snapshot has to move: the row that had a newer version.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    pub schema: String,
    pub table: String,
    pub key: String,
    pub winner: Position,
}

/// Where a statement began, to undo it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mark {
    pub(crate) writes: usize,
    pub(crate) kept: usize,
    pub(crate) absent: usize,
    pub(crate) ranges: usize,
    pub(crate) locked: usize,
    pub(crate) probes: usize,
    pub(crate) shown: usize,
}

/// The schema that a transaction sees.
pub(crate) struct OwnView {
    pub(crate) catalog: Arc<Catalog>,
    /// The position from which `catalog` holds; MAX: not to be asked.
    pub(crate) from: Position,
    pub(crate) own: Option<OwnSchema>,
    /// The session's temporary tables, if it has a place for them.
    pub(crate) temp: Option<Box<Temp>>,
}

impl OwnView {
    /// Sees this schema of its snapshot from here on, with the session's temporary tables.
    pub(crate) fn see(&mut self, catalog: Arc<Catalog>) {
        self.catalog = match &self.temp {
            Some(t) => t.over(catalog),
            None => catalog,
        };
        self.from = Position::MAX;
    }
}

/// What a transaction has read.
#[derive(Default)]
pub(crate) struct Reads {
    /// The snapshot, and the rows that were read by key.
    pub(crate) view: Option<View>,
    /// Keys read and not found.
    pub(crate) absent: Vec<(Arc<TableHandle>, Box<[u8]>)>,
    pub(crate) ranges: Vec<RangeRead>,
    /// Of split values, by storage, column and key: what guards that were not satisfied have needed at least, and its place among the ranges. The least of
    /// it says the others.
    pub(crate) bounds: HashMap<ValueName, (i128, usize), foldhash::fast::FixedState>,
    /// Guards that held, of deltas that a savepoint has undone: by value, its table and the least that it has to be. Their statements were told.
    pub(crate) told: HashMap<ValueName, (Arc<TableHandle>, i128), foldhash::fast::FixedState>,
    /// At a site: rows that were locked, with the position of the version that was. Their locks hold at this node only, so they go along as reads.
    pub(crate) locked: Vec<(RelId, Box<[u8]>, Position)>,
    /// Its snapshot moved over a change of a range that did not matter.
    pub(crate) spared: Option<Spared>,
}

/// Where the next snapshot stands.
#[derive(Default)]
pub(crate) struct Standing {
    /// At *published*, not at *installed*.
    pub(crate) at_published: bool,
    /// The snapshot that the next statement takes ([`Txn::set_read_position`](crate::Txn::set_read_position)).
    pub(crate) next: Option<Snapshot>,
    /// What the next statement goes on at, instead of a new snapshot.
    pub(crate) resumed: Option<Parked>,
    /// What the primary keeps for it, at the position of its one snapshot ([`Txn::stand_held`](crate::Txn::stand_held)).
    pub(crate) hold: Option<Box<dyn RemoteSnapshot>>,
    /// Open portals, whose snapshot must not move.
    pub(crate) portals: i32,
    /// The first statement's snapshot.
    pub(crate) since: Option<Position>,
    /// How often the snapshot moved forward.
    pub(crate) moves: u32,
    /// It began at a site: its commit is another node's to decide.
    pub(crate) elsewhere: bool,
    /// Of the schema, at a site.
    pub(crate) used: Used,
}

/// Foreign keys, and unique keys that are DEFERRABLE, which are still to be asked.
#[derive(Default)]
pub(crate) struct References {
    /// Checks that stand at the statement's end, then (optimistic) at commit.
    pub(crate) probes: Vec<FkProbe>,
    /// It locks nothing, and its deferred foreign keys are put off all the same: it has come from a site, and a session asks before its commit.
    pub(crate) asked_late: bool,
    /// Those that stand at the end of the transaction, and which constraints' do.
    pub(crate) put_off: Later<FkProbe>,
    pub(crate) deferred: Deferred,
    /// Keys that the statement has written, and those that are looked at when the transaction ends.
    pub(crate) keys: Later<NewKey>,
    pub(crate) keys_put_off: Later<NewKey>,
    pub(crate) cascades: Cascades,
}

impl References {
    /// Bytes of what is put off.
    pub(crate) fn bytes(&self) -> usize {
        self.put_off.bytes() + self.keys.bytes() + self.keys_put_off.bytes()
    }
}

/// A lock that was taken since a savepoint.
pub(crate) struct Since {
    pub(crate) name: LockName,
    /// The mode in which it was held before.
    pub(crate) before: Option<LockMode>,
    /// If it is one of a row with split columns: the storage and the key.
    pub(crate) split: Option<(RelId, Box<[u8]>)>,
}

/// The locks of a transaction.
#[derive(Default)]
pub(crate) struct OwnLocks {
    /// What is held or waited for; a name may stand here twice, after a wait that was given up.
    pub(crate) held: Vec<LockName>,
    /// What was taken since the first savepoint, in order.
    pub(crate) since: Vec<Since>,
    /// Rows, and in the mode `rows` records, that the statement has locked for its deltas, in all its runs. It gives those back to which it does nothing.
    pub(crate) for_deltas: Vec<LockName>,
    pub(crate) wait: Option<LockWait>,
    /// A lock that is wanted for the wait alone, and is weakened when it is had.
    pub(crate) passing: Option<LockName>,
    /// Under what name the session holds advisory locks, and whether it looks for deadlocks itself.
    pub(crate) bearer: Option<TxnId>,
    pub(crate) patient: bool,
    /// The lock that it waited for last: the only queue that it may stand in.
    pub(crate) queued: Option<LockName>,
    /// The last run of the statement ended in a wait.
    pub(crate) waited: bool,
    /// The tables that it uses.
    pub(crate) uses: OwnUses,
}

/// The statement that runs, or the last one.
#[derive(Default)]
pub(crate) struct Statement {
    pub(crate) mark: Mark,
    pub(crate) conflict: Option<Conflict>,
    /// A statement has come to an end, so that its client knows what it read.
    pub(crate) has_told: bool,
    /// An error that it gave tells of the newest state, which may be above the snapshot, or a delta that it has let through.
    pub(crate) leaked_newer_state: AtomicBool,
}

/// What a contended transaction shows to others, and does for them.
pub(crate) struct Courtesy {
    /// What others may see of its reads.
    pub(crate) shown: Option<Arc<Announced>>,
    /// The transaction that the statement has waited for, and how often it may still ([`Txn::writer_in_the_way`](crate::Txn::writer_in_the_way)).
    pub(crate) behind: Option<Arc<Announced>>,
    pub(crate) left: u8,
    /// Rows looked at again so far, to move the snapshot.
    pub(crate) looked_again: usize,
    /// Something read has changed: it may still end as if it had ended then, but writes no more.
    pub(crate) outdated: bool,
}

impl Default for Courtesy {
    fn default() -> Self {
        Courtesy {
            shown: None,
            behind: None,
            left: COURTESY,
            looked_again: 0,
            outdated: false,
        }
    }
}

/// What a transaction reserves of split values, until it has ended.
#[derive(Default)]
pub(crate) struct Escrowed {
    held: HashMap<ValueName, Reserved, foldhash::fast::FixedState>,
    /// The memory that this takes, here and in the table of all reservations.
    bytes: usize,
    /// Deltas live off a version here that may not be installed yet: the next snapshot does not stand below.
    pub(crate) lives_off: Position,
}

impl Escrowed {
    fn bytes_of(name: &ValueName) -> usize {
        2 * name.key.len() + 256
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn of(&self, name: &ValueName) -> Reserved {
        self.held.get(name).copied().unwrap_or(Reserved::NONE)
    }

    /// Holds this of the value from here on. What it held before.
    pub(crate) fn set(&mut self, name: &ValueName, hold: Reserved) -> Reserved {
        let before = match hold == Reserved::NONE {
            true => self.held.remove(name),
            false => self.held.insert(name.clone(), hold),
        };
        match (before.is_some(), hold != Reserved::NONE) {
            (false, true) => self.bytes += Escrowed::bytes_of(name),
            (true, false) => self.bytes -= Escrowed::bytes_of(name),
            _ => {}
        }
        before.unwrap_or(Reserved::NONE)
    }

    /// Everything, which is to be given back.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (ValueName, Reserved)> + '_ {
        self.bytes = 0;
        self.held.drain()
    }
}

/// Where the writes of a transaction stood, by name.
pub(crate) struct Savepoint {
    pub(crate) name: String,
    pub(crate) writes: usize,
    pub(crate) locked: usize,
    pub(crate) since: usize,
    pub(crate) probes: usize,
    pub(crate) put_off: PutOff<FkProbe>,
    pub(crate) keys_put_off: PutOff<NewKey>,
    pub(crate) deferred: Deferred,
}

/// The checks that had been put off at a savepoint. They are a list that grows, so its length tells them; a copy only when some are taken out of it
/// (SET CONSTRAINTS … IMMEDIATE).
pub(crate) enum PutOff<C> {
    First(usize),
    Copied(Vec<C>),
}

impl<C: Clone + Takes> PutOff<C> {
    /// Before `all` becomes another list.
    pub(crate) fn copy(&mut self, all: &[C]) {
        if let PutOff::First(n) = self {
            *self = PutOff::Copied(all[..*n].to_vec());
        }
    }

    /// Makes `all` what it was.
    pub(crate) fn restore(&self, all: &mut Later<C>) {
        match self {
            PutOff::First(n) => all.truncate(*n),
            PutOff::Copied(then) => all.replace(then.clone()),
        }
    }
}

/// The snapshot of a READ COMMITTED statement that rests between two calls (a portal), with the schema there.
pub struct Parked {
    pub(crate) view: View,
    pub(crate) catalog: Arc<Catalog>,
}
