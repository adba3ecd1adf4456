//! Reads by primary key whose result is plain columns: a key, a look-up, the row's own bytes. No operators, no slots.

use super::keys::encode_eq;
use super::{ExecContext, RowView, State};
use crate::expr::Expr;
use crate::plan::node::{KeyPart, Point};
use base::{Error, Value};
use txn::{Result, Txn};

/// Gives the row, if there is one, to `f`; how many there were.
pub fn run(
    p: &Point,
    st: &mut State,
    txn: &mut Txn,
    _cx: &ExecContext<'_>,
    f: &mut dyn FnMut(RowView<'_>) -> Result<()>,
) -> Result<u64> {
    let mut key = std::mem::take(&mut st.key);
    key.clear();
    if !key_of(p, &st.params, &mut key)? {
        return Ok(0);
    }
    let hit = txn.get_columns(p.scan.handle(), &key, p.reads, |row| {
        f(RowView::Stored {
            row,
            columns: &p.columns,
        })
    })?;
    st.key = key;
    match hit {
        Some(r) => r.map(|()| 1),
        None => Ok(0),
    }
}

/// Appends the encoded key; false: no row can have it.
#[inline]
pub fn key_of(p: &Point, params: &[Value], key: &mut Vec<u8>) -> Result<bool> {
    for (part, col) in p.scan.fixed.iter().zip(&p.scan.key) {
        let v: &Value = match part {
            KeyPart::Eq(Expr::Param(i)) => &params[*i as usize],
            KeyPart::Eq(Expr::Const(v)) => v,
            _ => return Err(Error::internal("a point read has constant keys").into()),
        };
        if !encode_eq(v, col, key) {
            return Ok(false);
        }
    }
    Ok(true)
}
