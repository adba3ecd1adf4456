//! Relations in FROM, and joins of them.

use super::{CatalogSource, Function, Logical};
use crate::expr::{Expr, Slot};
use base::Oid;
use base::schema::Table;
use std::sync::Arc;
use txn::TableHandle;

/// A table in FROM. Column `i` has slot `base + i`.
pub(crate) struct TableRef {
    pub table: Arc<Table>,
    pub handle: Option<Arc<TableHandle>>,
    pub alias: String,
    pub base: Slot,
    /// For the row's key, when the row is to be locked or written.
    pub key_slot: Option<Slot>,
    /// Only split columns of its rows are changed, by deltas: the rest of a row does not count as read.
    pub adds: bool,
    /// SKIP LOCKED passes over some of its rows.
    pub skips: bool,
    /// The views in whose queries it is named, the outermost first.
    pub views: Box<[Oid]>,
    /// What indexes know of expressions.
    pub computed: Computed,
}

/// The expressions and the conditions of a table's indexes, over its slots.
#[derive(Default)]
pub(crate) struct Computed {
    /// Hidden columns, each with the expression whose value it holds.
    pub columns: Vec<(usize, Expr)>,
    /// Hidden columns of partial indexes, which are TRUE where all these hold.
    pub conditions: Vec<(usize, Vec<Expr>)>,
}

/// Whether rows for which all of `given` are true are rows for which all of `wanted` are.
pub(crate) fn implied(given: &[Expr], wanted: &[Expr]) -> bool {
    let one = |w: &Expr| given.iter().any(|g| implies(g, w));
    wanted.iter().all(one)
}

/// Whether rows for which one condition is true are rows for which the other is: it is the same, or says that something is not NULL which the
/// first compares.
fn implies(given: &Expr, wanted: &Expr) -> bool {
    if given.same(wanted) {
        return true;
    }
    match (given, wanted) {
        (Expr::Compare(_, ab), Expr::IsNull { arg, not: true }) => ab.0.same(arg) || ab.1.same(arg),
        (Expr::InList(l), Expr::IsNull { arg, not: true }) => l.arg.same(arg),
        _ => false,
    }
}

impl TableRef {
    pub fn slot(&self, column: usize) -> Slot {
        self.base + column as Slot
    }

    /// The slot of `ctid`: the row's key.
    pub fn ctid(&self) -> Slot {
        self.slot(self.table.def.columns.len())
    }

    /// The column that a slot is, if it is one of this table.
    pub fn column_of(&self, s: Slot) -> Option<usize> {
        let n = self.table.def.columns.len() as Slot;
        (self.base..self.base + n)
            .contains(&s)
            .then(|| (s - self.base) as usize)
    }
}

/// A relation, or a join of some. `R` is a derived table: a logical plan, until the planner puts its own in the place.
pub(crate) enum From<R = Box<Logical>> {
    Table(TableRef),
    Virtual {
        source: CatalogSource,
        alias: String,
        base: Slot,
        width: usize,
    },
    Function(Function),
    /// The rows of a query.
    Rel {
        rel: R,
        slots: Vec<Slot>,
        /// Slots of other relations that it reads (LATERAL).
        deps: Vec<Slot>,
    },
    Cte {
        id: usize,
        name: String,
        out: Vec<Slot>,
        /// Slots that its rows depend on.
        deps: Vec<Slot>,
        work: bool,
    },
    Inner {
        items: Vec<From<R>>,
        filter: Vec<Expr>,
    },
    Left {
        left: Box<From<R>>,
        right: Box<From<R>>,
        on: Vec<Expr>,
    },
    /// FULL JOIN: both sides keep their rows.
    Full {
        left: Box<From<R>>,
        right: Box<From<R>>,
        on: Vec<Expr>,
    },
}

impl<R> From<R> {
    /// All slots that it writes.
    pub fn own_slots(&self, out: &mut Vec<Slot>) {
        match self {
            From::Table(t) => {
                out.extend((0..t.table.def.columns.len()).map(|i| t.slot(i)));
                out.push(t.ctid());
                out.extend(t.key_slot);
            }
            From::Virtual { base, width, .. } => out.extend(*base..*base + *width as Slot),
            From::Function(f) => {
                out.extend(&f.out);
                out.extend(f.ordinality);
            }
            From::Rel { slots, .. } => out.extend(slots),
            From::Cte { out: o, .. } => out.extend(o),
            From::Inner { items, .. } => items.iter().for_each(|i| i.own_slots(out)),
            From::Left { left, right, .. } | From::Full { left, right, .. } => {
                left.own_slots(out);
                right.own_slots(out);
            }
        }
    }

    /// Slots that it reads from elsewhere, its own among them.
    pub fn needs(&self, out: &mut Vec<Slot>) {
        match self {
            From::Table(_) | From::Virtual { .. } => {}
            From::Cte { deps, .. } => out.extend(deps),
            From::Function(f) => f.args.iter().for_each(|e| e.slots(&mut |s| out.push(s))),
            From::Rel { deps, .. } => out.extend(deps),
            From::Inner { items, filter } => {
                items.iter().for_each(|i| i.needs(out));
                filter.iter().for_each(|e| e.slots(&mut |s| out.push(s)));
            }
            From::Left { left, right, on } | From::Full { left, right, on } => {
                left.needs(out);
                right.needs(out);
                on.iter().for_each(|e| e.slots(&mut |s| out.push(s)));
            }
        }
    }

    /// The same joins, each derived table replaced.
    pub fn map<S, E>(self, f: &mut dyn FnMut(R) -> Result<S, E>) -> Result<From<S>, E> {
        Ok(match self {
            From::Table(t) => From::Table(t),
            From::Virtual {
                source,
                alias,
                base,
                width,
            } => From::Virtual {
                source,
                alias,
                base,
                width,
            },
            From::Function(g) => From::Function(g),
            From::Rel { rel, slots, deps } => From::Rel {
                rel: f(rel)?,
                slots,
                deps,
            },
            From::Cte {
                id,
                name,
                out,
                deps,
                work,
            } => From::Cte {
                id,
                name,
                out,
                deps,
                work,
            },
            From::Inner { items, filter } => From::Inner {
                items: items
                    .into_iter()
                    .map(|i| i.map(f))
                    .collect::<Result<_, _>>()?,
                filter,
            },
            From::Left { left, right, on } => From::Left {
                left: Box::new(left.map(f)?),
                right: Box::new(right.map(f)?),
                on,
            },
            From::Full { left, right, on } => From::Full {
                left: Box::new(left.map(f)?),
                right: Box::new(right.map(f)?),
                on,
            },
        })
    }
}

/// The slots that these relations write, in order, each once.
pub(crate) fn slots_of<R>(items: &[From<R>]) -> Vec<Slot> {
    let mut own = vec![];
    items.iter().for_each(|i| i.own_slots(&mut own));
    own.sort_unstable();
    own.dedup();
    own
}
