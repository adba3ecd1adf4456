//! What a transaction of a site used of the schema, and when each of these things was last changed.
//!
//! ```text
//! site        Used           relations that its statements name or reach by views, roles whose rights it had
//! candidate   used           the same, with the tables that it wrote
//! certifier   Redefinitions  the newest change of one of them: above the candidate's first snapshot it is refused
//! ```
//! A transaction whose statements do not say what they use has used all.
//!
//! Left out on purpose: what counts as a change of an object, which is `base::redefined`'s.

use base::redefined::Redefined;
use base::schema::Schema;
use base::{Oid, Position};
use std::collections::{BTreeSet, HashMap};

/// Most objects whose changes are kept one by one.
const MOST: usize = 1 << 16;

/// Since this node runs.
#[derive(Default)]
pub(crate) struct Redefinitions {
    objects: HashMap<Oid, Position>,
    /// Of what concerns all.
    shared: Position,
}

impl Redefinitions {
    /// The schema becomes `after` at this position, the newest.
    pub(crate) fn note(&mut self, before: &Schema, after: &Schema, at: Position) {
        before.each_redefined(after, &mut |r| match r {
            Redefined::Object(id) => drop(self.objects.insert(id, at)),
            Redefined::Shared => self.shared = at,
        });
        if self.objects.len() > MOST {
            // None is younger than this change.
            self.objects.clear();
            self.shared = at;
        }
    }

    /// The newest change of one of these.
    pub(crate) fn newest(&self, used: &[Oid]) -> Position {
        let own = used.iter().filter_map(|id| self.objects.get(id));
        own.copied().fold(self.shared, Position::max)
    }
}

/// What the statements of a transaction have said that they use.
#[derive(Default)]
pub(crate) struct Used {
    objects: BTreeSet<Oid>,
    all: bool,
}

impl Used {
    pub(crate) fn add(&mut self, objects: impl IntoIterator<Item = Oid>) {
        self.objects.extend(objects);
    }

    pub(crate) fn add_all(&mut self) {
        self.all = true;
    }

    /// These and what the transaction wrote; `None`: all.
    pub(crate) fn with(&self, written: impl Iterator<Item = Oid>) -> Option<Vec<Oid>> {
        if self.all || self.objects.is_empty() {
            return None;
        }
        let mut all = self.objects.clone();
        all.extend(written);
        Some(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::schema::{Change, Object};

    #[test]
    fn a_change_concerns_those_that_used_what_it_changed() {
        let role =
            |id: Oid, name: &str| Change::Put(Object::Role(base::schema::Role::new(id, name)));
        let s = Schema::bootstrap("canon");
        let two = s.apply(&[role(20_001, "a"), role(20_002, "b")]);
        let mut r = Redefinitions::default();
        r.note(&s, &two, Position::new(2, 0));
        assert_eq!(r.newest(&[20_001, 20_002]), Position::ZERO);
        r.note(&two, &two.apply(&[role(20_001, "c")]), Position::new(3, 0));
        assert_eq!(r.newest(&[20_001, 20_002]), Position::new(3, 0));
        assert_eq!(r.newest(&[20_002]), Position::ZERO);
    }

    #[test]
    fn a_transaction_that_says_nothing_has_used_all() {
        let mut u = Used::default();
        assert_eq!(u.with([5].into_iter()), None);
        u.add([7, 3]);
        assert_eq!(u.with([5].into_iter()), Some(vec![3, 5, 7]));
        u.add_all();
        assert_eq!(u.with([5].into_iter()), None);
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let s = Schema::bootstrap("canon");
        let mut r = Redefinitions {
            objects: (0..=MOST as Oid).map(|n| (n, Position::ZERO)).collect(),
            shared: Position::ZERO,
        };
        r.note(&s, &s, Position::new(7, 0));
        assert!(r.objects.is_empty());
        assert_eq!(r.newest(&[1]), Position::new(7, 0));
    }
}
