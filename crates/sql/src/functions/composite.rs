//! What the binder makes of composite types: a value of its fields, a field of a value, tests for NULL, comparisons.
//!
//! No text of a user's calls these by name. Each knows its type from the type of its first argument.

use super::{EvalContext, Kind, Resolved, ScalarFn, Volatility};
use crate::types::composite::row;
use base::{Result, Row, Type, UserType, Value};

fn resolved(name: &'static str, args: Vec<Type>, ret: Type, strict: bool, kind: Kind) -> Resolved {
    Resolved {
        name,
        args,
        ret,
        strict,
        volatility: Volatility::Immutable,
        kind,
        columns: &[],
    }
}

fn of(types: &[Type]) -> UserType {
    types[0].composite().expect("a composite type")
}

fn int(v: &Value) -> usize {
    v.as_i64().expect("an integer") as usize
}

/// A value of this type: NULL of the type, then a field for each attribute.
pub(crate) fn make(ty: UserType) -> Resolved {
    fn call(a: &[Value], types: &[Type], _: &mut EvalContext<'_>) -> Result<Value> {
        Ok(row(of(types), a[1..].iter().cloned()))
    }
    let parts = ty.attributes().map(|(_, a)| a.ty.ty);
    let args = [Type::User(ty)].into_iter().chain(parts).collect();
    resolved(
        "a composite value",
        args,
        Type::User(ty),
        false,
        Kind::Typed(call),
    )
}

/// The field in this place of a value.
pub(crate) fn field(ty: UserType, at: usize) -> Resolved {
    fn call(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
        Ok(match &a[0] {
            Value::Row(r) => r.fields.get(int(&a[1])).cloned().unwrap_or_default(),
            v => panic!("{v:?} has no fields"),
        })
    }
    let ret = ty.attributes.expect("a composite type")[at].ty.ty;
    let args = vec![Type::User(ty), Type::Int4];
    resolved("a field", args, ret, true, Kind::Scalar(call))
}

/// The value with another one in the place that these lead to, from the outside in; of NULL, a value whose other fields are NULL.
pub(crate) fn with_field(ty: UserType, path: &[usize]) -> Resolved {
    fn call(a: &[Value], types: &[Type], _: &mut EvalContext<'_>) -> Result<Value> {
        let (new, [old, path @ ..]) = a.split_last().expect("a value, places, a field") else {
            unreachable!("there is a value");
        };
        Ok(changed(old, of(types), path, new))
    }
    fn changed(old: &Value, ty: UserType, path: &[Value], new: &Value) -> Value {
        let Some((at, path)) = path.split_first() else {
            return new.clone();
        };
        let mut r = match old {
            Value::Row(r) => (**r).clone(),
            _ => Row { ty, fields: vec![] },
        };
        let (all, at) = (ty.attributes.expect("a composite type"), int(at));
        r.fields.resize(all.len(), Value::Null);
        r.fields[at] = match all[at].ty.ty.composite() {
            Some(inner) if !path.is_empty() => changed(&r.fields[at], inner, path, new),
            _ => new.clone(),
        };
        Value::Row(Box::new(r))
    }
    let part = path.iter().fold(Type::User(ty), |of, at| {
        let of = of
            .composite()
            .expect("the way leads through composite types");
        of.attributes.expect("a composite type")[*at].ty.ty
    });
    let places = path.iter().map(|_| Type::Int4);
    let args = [Type::User(ty)].into_iter().chain(places).chain([part]);
    resolved(
        "a changed field",
        args.collect(),
        Type::User(ty),
        false,
        Kind::Typed(call),
    )
}

/// `IS NULL`: NULL, or all fields are NULL. `IS NOT NULL`: no field is NULL.
pub(crate) fn null_test(ty: UserType, not: bool) -> Resolved {
    fn is_null(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
        Ok(Value::Bool(match &a[0] {
            Value::Row(r) => r.live().all(|(_, v)| v.is_null()),
            v => v.is_null(),
        }))
    }
    fn is_not_null(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
        Ok(Value::Bool(match &a[0] {
            Value::Row(r) => r.live().all(|(_, v)| !v.is_null()),
            v => !v.is_null(),
        }))
    }
    let (name, call) = match not {
        true => ("no field is NULL", is_not_null as ScalarFn),
        false => ("all fields are NULL", is_null as ScalarFn),
    };
    resolved(
        name,
        vec![Type::User(ty)],
        Type::Bool,
        false,
        Kind::Scalar(call),
    )
}

/// A comparison of two values of one composite type.
pub(super) fn comparison(op: &str, args: &[Type]) -> Option<Resolved> {
    let [left, right] = args else { return None };
    left.composite().filter(|_| left == right)?;
    let (name, call) = super::operators::SAME.into_iter().find(|(n, _)| *n == op)?;
    Some(resolved(
        name,
        args.to_vec(),
        Type::Bool,
        true,
        Kind::Scalar(call),
    ))
}
