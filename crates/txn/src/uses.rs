//! Where sessions note which tables their transactions use: see [`crate::table_locks`].

use base::Oid;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::locks::{LockMode, LockName, LockTable, TxnId};
use crate::table_modes::TableModes;

/// The places of a node's sessions.
#[derive(Default)]
pub(crate) struct Board {
    /// Transactions that hold or want a strong lock.
    strong: AtomicUsize,
    places: Mutex<Vec<Weak<Uses>>>,
}

/// Which tables the running transaction of a session uses.
pub struct Uses {
    board: Arc<Board>,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    of: TxnId,
    tables: Vec<(Oid, TableModes)>,
    /// What a LOCK has moved into the table of locks.
    moved: Vec<LockName>,
}

/// What a transaction knows of its own uses.
#[derive(Default)]
pub(crate) struct OwnUses {
    place: Option<Arc<Uses>>,
    /// What it has, by the place or by a lock.
    tables: Vec<(Oid, TableModes)>,
    /// It is counted in `Board::strong`.
    strong: bool,
}

impl Board {
    /// Whether a strong lock is held or wanted.
    pub fn is_locked(&self) -> bool {
        self.strong.load(Ordering::SeqCst) != 0
    }

    /// What is noted, each with its transaction.
    pub fn noted(&self) -> Vec<(Oid, TxnId, TableModes)> {
        let mut all = vec![];
        for uses in self.all() {
            let noted = uses.noted.lock();
            let tables = noted.tables.iter();
            all.extend(tables.map(|(table, modes)| (*table, noted.of, *modes)));
        }
        all
    }

    /// Moves what is noted of a table into the table of locks, under this name.
    pub fn gather(&self, table: Oid, name: LockName, locks: &LockTable) {
        for uses in self.all() {
            let mut noted = uses.noted.lock();
            let Some(at) = noted.tables.iter().position(|u| u.0 == table) else {
                continue;
            };
            let (_, modes) = noted.tables.swap_remove(at);
            locks.hold(noted.of, name, LockMode::Table(modes));
            noted.moved.push(name);
        }
    }

    /// The places of the sessions that are there.
    fn all(&self) -> Vec<Arc<Uses>> {
        let mut places = self.places.lock();
        places.retain(|p| p.strong_count() > 0);
        places.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Uses {
    /// A place on this board.
    fn on(board: &Arc<Board>) -> Arc<Uses> {
        let new = Arc::new(Uses {
            board: board.clone(),
            noted: Mutex::default(),
        });
        let mut places = board.places.lock();
        if places.len() == places.capacity() {
            // Those of ended sessions go first. Room for as many again, so that few sessions pay for this.
            places.retain(|p| p.strong_count() > 0);
            let more = places.len().max(16);
            places.reserve(more);
        }
        places.push(Arc::downgrade(&new));
        drop(places);
        new
    }
}

impl OwnUses {
    /// Takes the place of its session, which is made if there is none of this board. A place is of one transaction at a time: one whose
    /// commit is not decided yet keeps it.
    pub fn take(&mut self, place: &mut Option<Arc<Uses>>, board: &Arc<Board>) {
        if self.place.is_some() {
            return;
        }
        let free = |p: &Arc<Uses>| Arc::ptr_eq(&p.board, board) && Arc::strong_count(p) == 1;
        if !place.as_ref().is_some_and(free) {
            *place = Some(Uses::on(board));
        }
        self.place.clone_from(place);
    }

    /// Whether it has these modes of the table.
    pub fn has(&self, table: Oid, modes: TableModes) -> bool {
        let known = self.tables.iter().find(|u| u.0 == table);
        known.is_some_and(|u| u.1.has(modes))
    }

    /// It has them from now on.
    pub fn add(&mut self, table: Oid, modes: TableModes) {
        add(&mut self.tables, table, modes);
    }

    /// Notes a use at the session; false: it needs the lock.
    pub fn note(&self, me: TxnId, table: Oid, modes: TableModes, board: &Board) -> bool {
        let Some(place) = &self.place else {
            return !board.is_locked();
        };
        let mut noted = place.noted.lock();
        // Asked under the place's own lock: a LOCK that is counted later finds the note.
        if board.is_locked() {
            return false;
        }
        noted.of = me;
        add(&mut noted.tables, table, modes);
        true
    }

    /// Counts it among those with strong locks.
    pub fn count(&mut self, board: &Board) {
        if !std::mem::replace(&mut self.strong, true) {
            board.strong.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Nothing is used any more; the locks that were made of notes, to be given back.
    pub fn end(&mut self, board: &Board) -> Vec<LockName> {
        let own = std::mem::take(self);
        if own.strong {
            board.strong.fetch_sub(1, Ordering::SeqCst);
        }
        match own.place {
            Some(place) if !own.tables.is_empty() => {
                let mut noted = place.noted.lock();
                noted.tables.clear();
                std::mem::take(&mut noted.moved)
            }
            _ => vec![],
        }
    }
}

fn add(to: &mut Vec<(Oid, TableModes)>, table: Oid, modes: TableModes) {
    match to.iter_mut().find(|u| u.0 == table) {
        Some(u) => u.1 = u.1.with(modes),
        None => to.push((table, modes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Oid = 7;
    const NAME: LockName = LockName { space: 0, hash: 7 };
    const READ: TableModes = TableModes::ACCESS_SHARE;

    /// A transaction that has its session's place.
    fn begun(place: &mut Option<Arc<Uses>>, board: &Arc<Board>) -> OwnUses {
        let mut own = OwnUses::default();
        own.take(place, board);
        own
    }

    #[test]
    fn what_is_noted_becomes_a_lock_when_a_strong_one_is_wanted() {
        let (board, locks) = (Arc::new(Board::default()), LockTable::default());
        let mut place = None;
        let mut reader = begun(&mut place, &board);
        assert!(reader.note(1, TABLE, READ, &board));
        reader.add(TABLE, READ);
        let all = LockMode::Table(TableModes::ACCESS_EXCLUSIVE);
        assert_eq!(locks.holder(2, NAME, all), None);
        let mut locker = OwnUses::default();
        locker.count(&board);
        board.gather(TABLE, NAME, &locks);
        assert_eq!(locks.holder(2, NAME, all), Some(1));
        // Others take locks from now on.
        let mut other = None;
        assert!(!begun(&mut other, &board).note(3, TABLE, READ, &board));
        assert_eq!(reader.end(&board), [NAME]);
        assert!(locker.end(&board).is_empty() && !board.is_locked());
        assert!(begun(&mut other, &board).note(3, TABLE, READ, &board));
    }

    #[test]
    fn a_place_is_of_one_transaction_and_goes_with_its_session() {
        let board = Arc::new(Board::default());
        let mut place = None;
        let first = begun(&mut place, &board);
        let (before, _second) = (place.clone(), begun(&mut place, &board));
        assert!(!Arc::ptr_eq(&before.unwrap(), place.as_ref().unwrap()));
        drop(first);
        for _ in 0..10_000 {
            begun(&mut None, &board).end(&board);
        }
        assert!(board.places.lock().len() < 100);
    }
}
