//! Whether candidates of sites are certified side by side or take turns. Turns are the baselines of the thesis (PSP §3.3.3), to be measured beside
//! Canon's own way.
//!
//! | `site_certification` | take turns |
//! |---|---|
//! | `rows` (default) | none: record locks keep apart the commits of a common row |
//! | `tables` | candidates that change a common table, which is the thesis's class |
//! | `serial` | all, as if one thread certified |
//!
//! A turn lasts until the commit is installed. Its flush is shared with others in each of the three.
//!
//! Left out on purpose: classes by a key that an application names; commits of the primary's own clients, which never take turns.

use base::{Candidate, RelId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Locks for classes. Tables that share one take turns, too.
const CLASSES: usize = 64;

/// See the head of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certification {
    #[default]
    Rows,
    Tables,
    Serial,
}

impl FromStr for Certification {
    type Err = ();

    fn from_str(name: &str) -> Result<Certification, ()> {
        match name {
            "rows" => Ok(Certification::Rows),
            "tables" => Ok(Certification::Tables),
            "serial" => Ok(Certification::Serial),
            _ => Err(()),
        }
    }
}

/// Whose turn it is.
pub struct Turns {
    how: Certification,
    classes: [Mutex<()>; CLASSES],
}

impl Turns {
    pub fn new(how: Certification) -> Turns {
        Turns {
            how,
            classes: [const { Mutex::new(()) }; CLASSES],
        }
    }

    /// Waits for the candidate's turn, which lasts as long as what is returned. Locks of several classes are taken in the order of the classes.
    pub fn take(&self, candidate: &Candidate) -> Vec<MutexGuard<'_, ()>> {
        let classes = self.classes_of(candidate);
        classes.iter().map(|c| self.classes[*c].lock()).collect()
    }

    fn classes_of(&self, candidate: &Candidate) -> BTreeSet<usize> {
        let class = |storage: RelId| storage as usize % CLASSES;
        let writes = candidate.footprint.writes.iter();
        match self.how {
            Certification::Rows => BTreeSet::new(),
            Certification::Tables => writes.map(|w| class(w.storage)).collect(),
            Certification::Serial => [0].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::footprint::WriteEntry;
    use base::{Footprint, Isolation, Position};

    fn changes(storages: &[RelId]) -> Candidate {
        let write = |storage: &RelId| WriteEntry {
            storage: *storage,
            key: (*b"k").into(),
            overwrites: Position::ZERO,
            existed: false,
            row: None,
            moved: vec![],
            found_by: vec![],
        };
        Candidate {
            number: 1,
            level: Isolation::RepeatableRead,
            since: Position::ZERO,
            used: None,
            footprint: Footprint {
                writes: storages.iter().map(write).collect(),
                ..Footprint::default()
            },
        }
    }

    #[test]
    fn who_waits_for_whom() {
        // What is free while a candidate of tables 1 and 2 has its turn: one of 2 and 3, and one of 3.
        let free = |how| {
            let turns = Turns::new(how);
            let _turn = turns.take(&changes(&[2, 1]));
            [&[3, 2][..], &[3]].map(|storages| {
                let classes = turns.classes_of(&changes(storages));
                classes
                    .iter()
                    .all(|c| turns.classes[*c].try_lock().is_some())
            })
        };
        assert_eq!(free(Certification::Rows), [true, true]);
        assert_eq!(free(Certification::Tables), [false, true]);
        assert_eq!(free(Certification::Serial), [false, false]);
    }
}
