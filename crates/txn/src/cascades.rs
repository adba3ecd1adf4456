//! What a statement knows of the cascades that it has begun: rows whose children are to follow, and groups of children found so far.
//!
//! Left out on purpose: following them, which is `cascade`'s.

use base::schema::{FkAction, ForeignKey};
use base::{RelId, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::handle::TableHandle;
use crate::key_values::{group_of, values_of};
use crate::probe::FkProbe;

/// A row's key and its values.
pub(crate) type Keyed = (Vec<u8>, Vec<Value>);

/// What a statement knows of its cascades.
#[derive(Default)]
pub(crate) struct Cascades {
    /// Rows that the statement itself has changed: what follows from them waits for its last write.
    pub(crate) waiting: VecDeque<Frame>,
    pub(crate) stack: Vec<Frame>,
    pub(crate) runs: bool,
    pub(crate) groups: Vec<Grouped>,
    /// Whole tables read to find children: what a test counts.
    pub(crate) whole: usize,
}

pub(crate) enum Frame {
    /// A row that went (`new` is none) or changed; the next of the keys that reference its table.
    Row {
        table: Arc<TableHandle>,
        old: Vec<Value>,
        new: Option<Vec<Value>>,
        next: usize,
    },
    /// Rows that referenced it by one key.
    Children {
        child: Arc<TableHandle>,
        fk: ForeignKey,
        action: FkAction,
        rows: std::vec::IntoIter<Keyed>,
        parent: Option<Vec<Value>>,
        probe: FkProbe,
    },
}

/// Rows of a table by what they reference; none yet: it was asked for once.
pub(crate) struct Grouped {
    pub(crate) storage: RelId,
    pub(crate) place: usize,
    pub(crate) by: Option<HashMap<Vec<u8>, Vec<Box<[u8]>>>>,
}

impl Cascades {
    /// Forgets the statement before.
    pub(crate) fn clear(&mut self) {
        if !self.groups.is_empty() || !self.waiting.is_empty() || self.runs {
            *self = Cascades {
                whole: self.whole,
                ..Cascades::default()
            };
        }
    }

    /// A row of `table` references something that it did not.
    pub(crate) fn references(&mut self, table: &TableHandle, key: &[u8], row: &[Value]) {
        let of = |g: &&mut Grouped| g.storage == table.storage.id;
        for g in self.groups.iter_mut().filter(of) {
            let Some(by) = &mut g.by else { continue };
            let Some(fk) = table.table.def.foreign_keys.get(g.place) else {
                continue;
            };
            if let Some(values) = values_of(row, &fk.columns) {
                by.entry(group_of(&values)).or_default().push(key.into());
            }
        }
    }
}
