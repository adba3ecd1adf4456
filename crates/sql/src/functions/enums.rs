//! Functions of enums: the first label, the last, and ranges of them.
//!
//! They look at the types of their arguments, so an argument that is NULL says what it has to say.

use super::EvalContext;
use super::registry::{Registry, names::*};
use base::{Array, Error, Result, SqlState, Type, UserType, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn of(types: &[Type]) -> UserType {
    match types[0] {
        Type::User(u) => u,
        other => unreachable!("{other:?} is no enum"),
    }
}

fn end(types: &[Type], last: bool) -> Result<Value> {
    let ty = of(types);
    let label = match last {
        true => ty.labels.last(),
        false => ty.labels.first(),
    };
    let label = label.ok_or_else(|| {
        Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("enum {} contains no values", ty.name),
        )
    })?;
    Ok(Value::Enum(ty, label.rank))
}

fn range(a: &[Value], types: &[Type], _: Ctx<'_, '_>) -> Result<Value> {
    let ty = of(types);
    let bound = |at: usize, open: u64| match a.get(at) {
        Some(Value::Enum(_, rank)) => *rank,
        _ => open,
    };
    let (low, high) = match types.len() {
        1 => (0, u64::MAX),
        _ => (bound(0, 0), bound(1, u64::MAX)),
    };
    let inside = ty.labels.iter().filter(|l| low <= l.rank && l.rank <= high);
    let items = inside.map(|l| Value::Enum(ty, l.rank)).collect();
    Ok(Value::Array(Box::new(Array::one_dim(types[0], items))))
}

/// Adds the functions.
pub(super) fn register(r: &mut Registry) {
    r.t("enum_first", &[ANYENUM], ANYENUM, STA_N, |_, t, _| {
        end(t, false)
    });
    r.t("enum_last", &[ANYENUM], ANYENUM, STA_N, |_, t, _| {
        end(t, true)
    });
    r.t("enum_range", &[ANYENUM], ANYARRAY, STA_N, range);
    r.t("enum_range", &[ANYENUM, ANYENUM], ANYARRAY, STA_N, range);
}
