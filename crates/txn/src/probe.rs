//! What a statement or a commit still has to ask about foreign keys, and about unique keys that are DEFERRABLE, as values.
//!
//! Left out on purpose: the asking, which is `fk`'s and `unique`'s.

use base::schema::{Deferral, ForeignKey};
use base::{Oid, Value};
use std::collections::HashMap;
use std::sync::Arc;

use crate::handle::TableHandle;
use crate::key_values::group_of;

/// Something that must hold when the statement ends, and again at commit.
#[derive(Clone)]
pub(crate) struct FkProbe {
    /// The referencing table and the place of the foreign key in it.
    pub(crate) child: Arc<TableHandle>,
    pub(crate) place: usize,
    /// The referenced columns' values.
    pub(crate) values: Vec<Value>,
    pub(crate) kind: Side,
    /// The rows that referenced the old key have followed (CASCADE, SET NULL, SET DEFAULT): one that is there all the same came meanwhile.
    pub(crate) followed: bool,
    /// It is RESTRICT, or has followed: not to be put off.
    pub(crate) now: bool,
    /// A row that the transaction has written asks, so it may go again.
    pub(crate) written: bool,
}

/// A key of a unique index that a row was given.
#[derive(Clone)]
pub(crate) struct NewKey {
    pub(crate) table: Oid,
    pub(crate) index: Oid,
    /// As the index has it, without the row's key.
    pub(crate) columns: Box<[u8]>,
}

/// What an entry of a [`Later`] takes of memory.
pub(crate) trait Takes {
    fn bytes(&self) -> usize;
}

impl Takes for FkProbe {
    fn bytes(&self) -> usize {
        let beside = |v: &Value| match v {
            Value::Text(s) => s.len(),
            Value::Json(s) => s.len(),
            Value::Bytea(b) => b.len(),
            _ => 0,
        };
        let values = self.values.iter().map(|v| size_of::<Value>() + beside(v));
        size_of::<FkProbe>() + values.sum::<usize>()
    }
}

impl Takes for NewKey {
    fn bytes(&self) -> usize {
        size_of::<NewKey>() + self.columns.len()
    }
}

/// What is to be asked later. It grows with each row that is written, so its bytes are counted as those of changes that are not committed.
pub(crate) struct Later<C> {
    all: Vec<C>,
    bytes: usize,
}

impl<C> Default for Later<C> {
    fn default() -> Later<C> {
        Later {
            all: vec![],
            bytes: 0,
        }
    }
}

impl<C> std::ops::Deref for Later<C> {
    type Target = [C];

    fn deref(&self) -> &[C] {
        &self.all
    }
}

impl<C: Takes> Later<C> {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, entry: C) {
        self.bytes += entry.bytes();
        self.all.push(entry);
    }

    pub(crate) fn extend(&mut self, entries: Vec<C>) {
        self.bytes += entries.iter().map(C::bytes).sum::<usize>();
        self.all.extend(entries);
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        let gone = self.all.iter().skip(len);
        self.bytes -= gone.map(C::bytes).sum::<usize>();
        self.all.truncate(len);
    }

    /// All of them, which leaves none.
    pub(crate) fn take(&mut self) -> Vec<C> {
        self.bytes = 0;
        std::mem::take(&mut self.all)
    }

    pub(crate) fn replace(&mut self, entries: Vec<C>) {
        self.take();
        self.extend(entries);
    }
}

/// Which constraints a transaction has said to put off.
#[derive(Clone, Debug, Default)]
pub struct Deferred {
    all: Option<bool>,
    /// By the constraint's number; it counts more than `all` if it was said later.
    named: HashMap<Oid, bool>,
}

impl Deferred {
    /// All of them, or these, from here on.
    pub fn set(&mut self, constraints: Option<&[Oid]>, deferred: bool) {
        match constraints {
            None => {
                self.all = Some(deferred);
                self.named.clear();
            }
            Some(these) => self.named.extend(these.iter().map(|k| (*k, deferred))),
        }
    }

    /// Whether the checks of this constraint are put off now.
    pub(crate) fn is(&self, constraint: Oid, deferral: Deferral) -> bool {
        if deferral.is_never() {
            return false;
        }
        let named = self.named.get(&constraint).copied();
        let default = deferral == Deferral::Deferred;
        named.or(self.all).unwrap_or(default)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// A child was written: the parent must be there.
    Parent,
    /// A parent went: there must be no children.
    Children,
}

impl FkProbe {
    pub(crate) fn fk(&self) -> &ForeignKey {
        &self.child.table.def.foreign_keys[self.place]
    }
}

/// Tables that are to be read whole, each with the place of its key and the probes whose values are looked for.
pub(crate) type Whole<'p> = Vec<(Arc<TableHandle>, usize, HashMap<Vec<u8>, &'p FkProbe>)>;

pub(crate) fn look_for<'p>(whole: &mut Whole<'p>, child: Arc<TableHandle>, p: &'p FkProbe) {
    let group = group_of(&p.values);
    let same = |w: &&mut (Arc<TableHandle>, usize, _)| {
        w.1 == p.place && w.0.table.def.id == child.table.def.id
    };
    match whole.iter_mut().find(same) {
        Some((_, _, by)) => drop(by.insert(group, p)),
        None => whole.push((child, p.place, HashMap::from([(group, p)]))),
    }
}
