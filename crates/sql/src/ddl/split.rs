//! Split columns in the schema: which can be split, and between which bounds.
//!
//! ```text
//! ALTER TABLE t ALTER COLUMN c SET (split = on, split_max = 64)      RESET (split, split_max, split_min, split_mode)
//! CREATE TABLE t (…) WITH (split = 'c, d')                           the same, for each column named
//! ```
//! After every statement that changes a table, [`settle`] looks at each split column again. The bounds come from the CHECK constraints; a
//! change that the column could not follow as a split one is refused (0A000), so the column is reset first.
//!
//! | a split column | otherwise |
//! |---|---|
//! | int2, int4, int8, numeric(p, s) with p up to 36 | 0A000 |
//! | of no domain | 0A000 |
//! | NOT NULL | 0A000 |
//! | in a table with a primary key | an ordinary column until the table has one: a dump makes the key last |
//! | in no index, key or foreign key | 0A000 |
//! | in a table without generated columns, partial indexes, and indexes over expressions | 0A000 |
//! | without an upper bound, if `split_mode = rows` | 0A000: the shares of the records have lower bounds only |
//! | in CHECK constraints of the form `c >= k`, `c > k`, `c <= k`, `c < k`, also joined by AND | 0A000 |
//!
//! Left out on purpose: CHECK constraints over several columns, one of which is split.

use super::expr_text;
use super::work::Work;
use crate::catalog;
use base::schema::{CANON_SPLIT, Object, TableDef};
use base::split::{Mode, Split, Units};
use base::{Error, Numeric, Result, SqlState, Value};
use sqlparser::ast::{BinaryOperator, Expr, Ident, ObjectName, SqlOption, UnaryOperator};
use std::str::FromStr;

/// Most that can be asked for.
const MOST: u16 = 1024;

/// Options of a column, as ALTER COLUMN SET or RESET names them: name, value.
pub type Options = Vec<(String, String)>;

fn refused(def: &TableDef, column: &str, why: &str) -> Error {
    let what = format!(
        "column \"{column}\" of table \"{}\" cannot be split",
        def.name
    );
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, what).detail(why)
}

fn switch(value: &str) -> Result<bool> {
    match value.trim_matches('\'').to_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for boolean option \"split\": {value}"),
        )),
    }
}

fn number(name: &str, value: &str) -> Result<u16> {
    let n = value.trim_matches('\'').parse::<u16>().ok();
    n.filter(|n| *n <= MOST).ok_or_else(|| {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("value {value} out of bounds for option \"{name}\""),
        )
        .detail(format!("Valid values are between \"0\" and \"{MOST}\"."))
    })
}

fn mode(value: &str) -> Result<Mode> {
    Mode::of(&value.trim_matches('\'').to_lowercase()).ok_or_else(|| {
        let what = format!("invalid value for enum option \"split_mode\": {value}");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
            .detail("Valid values are \"escrow\" and \"rows\".")
    })
}

impl Work<'_> {
    /// ALTER COLUMN SET (…) and RESET (…).
    pub(super) fn column_options(
        &mut self,
        table: &ObjectName,
        column: &Ident,
        set: &Options,
        reset: &[String],
    ) -> Result<()> {
        let mut def = self.own_table(table)?.def.clone();
        let name = catalog::fold(column);
        let at = super::constraints::place(&def, &name)
            .ok_or_else(|| super::alter::no_column(&def, &name))?;
        let split = &mut def.columns[at as usize].split;
        let new = Split::default;
        let mut off = false;
        for (name, value) in set {
            match name.as_str() {
                "split" if switch(value)? => drop(split.get_or_insert_with(new)),
                "split" => off = true,
                "split_max" => split.get_or_insert_with(new).max = number(name, value)?,
                "split_min" => split.get_or_insert_with(new).min = number(name, value)?,
                "split_mode" => split.get_or_insert_with(new).mode = mode(value)?,
                // Statistics, of which there are none.
                "n_distinct" | "n_distinct_inherited" => {}
                other => return Err(unrecognized(other)),
            }
        }
        if off {
            *split = None;
        }
        for name in reset {
            match (name.as_str(), &mut *split) {
                ("split", s) => *s = None,
                ("split_max", Some(s)) => s.max = new().max,
                ("split_min", Some(s)) => s.min = new().min,
                ("split_mode", Some(s)) => s.mode = new().mode,
                ("split_max" | "split_min" | "split_mode", None)
                | ("n_distinct" | "n_distinct_inherited", _) => {}
                (other, _) => return Err(unrecognized(other)),
            }
        }
        self.put(Object::Table(def));
        Ok(())
    }
}

fn unrecognized(name: &str) -> Error {
    let what = format!("unrecognized parameter \"{name}\"");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// The columns that `WITH (split = '…')` of a new table names.
pub(super) fn of_table(def: &mut TableDef, options: &[SqlOption]) -> Result<()> {
    for o in options {
        let SqlOption::KeyValue { key, value } = o else {
            continue;
        };
        if !key.value.eq_ignore_ascii_case("split") {
            continue;
        }
        let text = value.to_string();
        for name in text.trim_matches('\'').split(',').map(str::trim) {
            let at = super::constraints::place(def, name)
                .ok_or_else(|| super::alter::no_column(def, name))?;
            def.columns[at as usize].split = Some(Split::default());
        }
    }
    Ok(())
}

/// Brings the split columns of a table in line with the rest of its definition; 0A000 where that cannot be.
pub(super) fn settle(def: &mut TableDef) -> Result<()> {
    if def.namespace == CANON_SPLIT {
        return Ok(());
    }
    for at in 0..def.columns.len() {
        if def.columns[at].dropped {
            def.columns[at].split = None;
        }
        if let Some(split) = def.columns[at].split.clone() {
            def.columns[at].split = Some(settled(def, at, split)?);
        }
    }
    Ok(())
}

fn settled(def: &TableDef, at: usize, split: Split) -> Result<Split> {
    let column = &def.columns[at];
    let refuse = |why: &str| Err(refused(def, &column.name, why));
    let Some(units) = Units::of(column.ty()) else {
        return refuse(
            "Its type has to be int2, int4, int8, or numeric with a precision of up to 36 digits.",
        );
    };
    if !column.not_null {
        return refuse("It has to be NOT NULL.");
    }
    // Its CHECK would be a bound that ALTER DOMAIN moves.
    if column.domain.is_some() {
        return refuse("Its type is a domain.");
    }
    let here = at as u16;
    if def
        .indexes
        .iter()
        .any(|i| i.columns.iter().any(|c| c.column == here))
    {
        return refuse("It is a column of an index or a key.");
    }
    if def.columns.iter().any(|c| c.generated && !c.dropped) {
        return refuse("Its table has a generated column.");
    }
    if def.columns.iter().any(|c| c.is_hidden()) {
        return refuse("Its table has a partial index, or one over an expression.");
    }
    if def.foreign_keys.iter().any(|f| f.columns.contains(&here)) {
        return refuse("It is a column of a foreign key.");
    }
    let mut split = Split {
        lower: None,
        upper: None,
        ..split
    };
    for c in &def.checks {
        let e = expr_text::parse(&c.expr)?;
        if mentions(&e, &column.name) && !bounds(&e, &column.name, &units, &mut split) {
            let why = format!(
                "The CHECK constraint \"{}\" says something else of it than a bound.",
                c.name
            );
            return refuse(&why);
        }
    }
    if split.mode == Mode::Rows && split.upper.is_some() {
        return refuse("It has an upper bound, which \"split_mode = rows\" does not keep.");
    }
    Ok(split)
}

fn is_column(e: &Expr, name: &str) -> bool {
    match e {
        Expr::Identifier(i) => catalog::fold(i) == name,
        Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|i| catalog::fold(i) == name),
        Expr::Nested(e) => is_column(e, name),
        _ => false,
    }
}

fn mentions(e: &Expr, name: &str) -> bool {
    !expr_text::mentioned(&crate::printed::printed(e), &[name]).is_empty()
}

/// Takes the bounds that the condition demands of the column; false where it demands something else of it.
fn bounds(e: &Expr, name: &str, units: &Units, split: &mut Split) -> bool {
    use BinaryOperator as Op;
    let Expr::BinaryOp { left, op, right } = e else {
        return match e {
            Expr::Nested(e) => bounds(e, name, units, split),
            _ => false,
        };
    };
    if matches!(op, Op::And) {
        return [left, right]
            .iter()
            .all(|e| !mentions(e, name) || bounds(e, name, units, split));
    }
    let (constant, op) = match (is_column(left, name), is_column(right, name)) {
        (true, false) => (constant(right), op.clone()),
        (false, true) => {
            let turned = match op {
                Op::Gt => Op::Lt,
                Op::GtEq => Op::LtEq,
                Op::Lt => Op::Gt,
                Op::LtEq => Op::GtEq,
                _ => return false,
            };
            (constant(left), turned)
        }
        _ => return false,
    };
    let Some(k) = constant else { return false };
    let up = matches!(op, Op::GtEq | Op::Lt);
    let Some(bound) = units.round(&k, up) else {
        return false;
    };
    let bound = match op {
        Op::GtEq | Op::LtEq => bound,
        Op::Gt => bound + 1,
        Op::Lt => bound - 1,
        _ => return false,
    };
    let Ok(bound) = i64::try_from(bound) else {
        return false;
    };
    match op {
        Op::GtEq | Op::Gt => split.lower = Some(split.lower.map_or(bound, |l| l.max(bound))),
        _ => split.upper = Some(split.upper.map_or(bound, |u| u.min(bound))),
    }
    true
}

fn is_whole(v: &Value) -> bool {
    match v {
        Value::Numeric(n) => matches!(&**n, Numeric::Finite(d) if d.is_integer()),
        _ => false,
    }
}

/// A number as a CHECK spells it, signs, brackets and casts included.
fn constant(e: &Expr) -> Option<Value> {
    match e {
        Expr::Value(v) => {
            let text = v.to_string();
            let n = Numeric::from_str(text.trim_matches('\'')).ok()?;
            Some(Value::from(n))
        }
        Expr::Nested(e) => constant(e),
        // A cast to another type than plain numeric may round.
        Expr::Cast {
            expr, data_type, ..
        } => {
            let plain = data_type.to_string().eq_ignore_ascii_case("numeric");
            constant(expr).filter(|v| plain || is_whole(v))
        }
        Expr::UnaryOp { op, expr } => match (op, constant(expr)?) {
            (UnaryOperator::Plus, v) => Some(v),
            (UnaryOperator::Minus, Value::Numeric(n)) => match *n {
                Numeric::Finite(d) => Some(Value::from(Numeric::Finite(-d))),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// `attoptions` of a column; none: NULL.
pub fn shown(split: Option<&Split>) -> Option<Vec<String>> {
    let split = split?;
    let mut shown = vec!["split=on".into(), format!("split_max={}", split.max)];
    if split.min > 0 {
        shown.push(format!("split_min={}", split.min));
    }
    if split.mode != Mode::Escrow {
        shown.push(format!("split_mode={}", split.mode.name()));
    }
    Some(shown)
}
