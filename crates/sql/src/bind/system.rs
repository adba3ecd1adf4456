//! System columns: names that a table has beside its columns.
//!
//! | name | what it holds |
//! |---|---|
//! | `ctid` | where the row stands, by its key: [`crate::types::place`]. It stays as it is when the row is updated |
//! | `xmin` | a number that the row's values give (`base::row::fingerprint`): another one after an update, the same where the row reads the same |
//! | `xmax` | 0; in the RETURNING of an INSERT with ON CONFLICT DO UPDATE not 0 where a row was updated |
//! | `tableoid` | the table |
//!
//! PostgreSQL's `xmin` is the number of the transaction that made the row. Programs take it as the version of a row (`UPDATE … WHERE id = $1
//! AND xmin = $2 RETURNING xmin`). Here the number is known before the commit, and it is the same at replicas and after a restart.
//!
//! Left out on purpose (0A000): `cmin` and `cmax`; `xmin` of a table with split columns, whose values are in several records; `ctid` of a row that
//! INSERT makes. Views, subqueries and catalogs have none but `tableoid`.

use crate::expr::{Call, Expr, Slot};
use crate::functions::{EvalContext, Kind, Resolved, Volatility};
use crate::types::place::{self, KeyKind};
use base::schema::Table;
use base::{Error, Oid, Result, Type, Value};

/// What the system columns of a relation are made of.
#[derive(Clone, Debug)]
pub struct System {
    pub(super) table: Oid,
    /// The slots of the columns that statements see.
    row: Vec<Slot>,
    split: bool,
    kind: KeyKind,
    /// A column that no row has NULL in; none: the key says whether there is a row.
    never_null: Option<Slot>,
    /// The slot of the row's key; none where rows have none yet.
    pub key: Option<Slot>,
    /// The slot that says whether the row was there before.
    pub updated: Option<Slot>,
}

impl System {
    /// Those of a table whose columns have the slots from `base` on, and whose rows' keys stand in the slot after them.
    pub fn of(t: &Table, base: Slot) -> Box<System> {
        let columns = &t.def.columns;
        let live = (0..columns.len()).filter(|i| !columns[*i].dropped);
        let mut solid = live.clone().filter(|i| columns[*i].not_null);
        let never_null = solid.next().map(|i| base + i as Slot);
        let kind = match t.primary().map(|i| &t.def.indexes[i].columns[..]) {
            None => KeyKind::Row,
            Some([k]) if !k.desc => match columns[k.column as usize].ty().ty {
                Type::Int2 | Type::Int4 | Type::Int8 => KeyKind::Integer,
                _ => KeyKind::Other,
            },
            Some(_) => KeyKind::Other,
        };
        Box::new(System {
            table: t.def.id,
            row: live.map(|i| base + i as Slot).collect(),
            split: columns.iter().any(|c| c.split.is_some()),
            kind,
            never_null,
            key: Some(base + columns.len() as Slot),
            updated: None,
        })
    }

    /// The value of a system column and its type. The name must be one. NULL where an outer join has no row.
    pub(super) fn value(&self, name: &str) -> Result<(Expr, Type)> {
        Ok(match name {
            "tableoid" => {
                let table = Expr::Const(Value::Oid(self.table));
                (self.where_there(table), Type::Oid)
            }
            "ctid" => {
                let key = self
                    .key
                    .ok_or_else(|| Error::unsupported("ctid of a row that INSERT makes"))?;
                (place_of(key, self.kind), Type::Tid)
            }
            "xmin" if self.split => {
                return Err(Error::unsupported("xmin of a table with split columns"));
            }
            "xmin" => (self.where_there(version_of(&self.row)), Type::Xid),
            "xmax" => match self.updated {
                Some(s) => (Expr::Slot(s), Type::Xid),
                None => {
                    let none = Expr::Const(Value::Oid(0));
                    (self.where_there(none), Type::Xid)
                }
            },
            other => return Err(Error::unsupported(format!("the system column {other}"))),
        })
    }

    /// NULL on the side of an outer join that has no row. A column says so where one can: a condition over columns alone is asked again by
    /// commit, which has no keys.
    fn where_there(&self, e: Expr) -> Expr {
        let Some(slot) = self.never_null.or(self.key) else {
            return e;
        };
        let arg = Box::new(Expr::Slot(slot));
        let gone = Expr::IsNull { arg, not: false };
        Expr::Case {
            whens: vec![(gone, Expr::NULL)],
            otherwise: Box::new(e),
        }
    }
}

const NAMES: [&str; 6] = ["ctid", "xmin", "xmax", "tableoid", "cmin", "cmax"];

pub(super) fn is_system(name: &str) -> bool {
    NAMES.contains(&name)
}

/// A call over slots that no name reaches.
fn call(
    (name, f): (&'static str, crate::functions::ScalarFn),
    args: Vec<Expr>,
    (ret, volatility): (Type, Volatility),
) -> Expr {
    let f = Resolved {
        name,
        args: args.iter().map(|_| Type::Unknown).collect(),
        ret,
        strict: false,
        volatility,
        kind: Kind::Scalar(f),
        columns: &[],
    };
    Expr::Call(Box::new(Call { f, args, op: None }))
}

fn place_of(key: Slot, kind: KeyKind) -> Expr {
    let f: crate::functions::ScalarFn = match kind {
        KeyKind::Row => |a, c| place(a, c, KeyKind::Row),
        KeyKind::Integer => |a, c| place(a, c, KeyKind::Integer),
        KeyKind::Other => |a, c| place(a, c, KeyKind::Other),
    };
    // Not immutable, because commit asks immutable conditions again, by the columns of rows: it has no keys.
    call(
        ("ctid", f),
        vec![Expr::Slot(key)],
        (Type::Tid, Volatility::Stable),
    )
}

fn place(a: &[Value], _: &mut EvalContext<'_>, kind: KeyKind) -> Result<Value> {
    Ok(match &a[0] {
        Value::Bytea(key) => Value::Bytea(place::of_key(key, kind).into()),
        // The side of an outer join that has no row.
        _ => Value::Null,
    })
}

fn version_of(row: &[Slot]) -> Expr {
    let args = row.iter().map(|s| Expr::Slot(*s)).collect();
    let f: crate::functions::ScalarFn = |a, _| Ok(Value::Oid(base::row::fingerprint(a)));
    call(("xmin", f), args, (Type::Xid, Volatility::Immutable))
}
