//! Assignment to a part of a `jsonb` value: `SET j['a'][2] = '7'`.
//!
//! What the path leads through is made where it is missing: an array for a step that is a number, filled up with null, else an object. A NULL
//! value is an empty object, or an empty array where the first subscript is an integer. A step into what is no object and no array is refused.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::json::{self, Json};
use crate::types::ops::array;
use base::{Error, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// Most nulls that an assignment behind the end of an array adds.
const MOST_NULLS: usize = 1 << 20;

fn bad(what: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// `count` nulls at the end.
fn fill(items: &mut Vec<Json>, count: usize) -> Result<()> {
    if count > MOST_NULLS {
        let what = format!("an assignment that adds more than {MOST_NULLS} nulls");
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what));
    }
    items.resize(items.len() + count, Json::Null);
    Ok(())
}

/// What stands at the end of a path that leads nowhere yet.
fn made(path: &[&str], new: Json) -> Result<Json> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(new);
    };
    let inner = made(rest, new)?;
    Ok(match first.parse::<i32>() {
        Ok(at) => {
            let mut items = vec![];
            fill(&mut items, usize::try_from(at).unwrap_or(0))?;
            items.push(inner);
            Json::Array(items)
        }
        Err(_) => Json::object(vec![((*first).to_owned(), inner)]),
    })
}

/// `level`: steps taken so far.
fn put(j: &mut Json, path: &[&str], level: usize, new: Json) -> Result<()> {
    let Some((first, rest)) = path.split_first() else {
        *j = new;
        return Ok(());
    };
    let position = level + 1;
    match j {
        Json::Object(members) => {
            if let Some(member) = members.iter_mut().find(|m| m.0 == *first) {
                return put(&mut member.1, rest, position, new);
            }
            let mut members = std::mem::take(members);
            members.push(((*first).to_owned(), made(rest, new)?));
            *j = Json::object(members);
            Ok(())
        }
        Json::Array(items) => {
            let at: i32 = first.parse().map_err(|_| {
                let what =
                    format!("path element at position {position} is not an integer: \"{first}\"");
                Error::new(SqlState::INVALID_TEXT_REPRESENTATION, what)
            })?;
            let len = items.len() as i64;
            let place = if at < 0 {
                len + i64::from(at)
            } else {
                at.into()
            };
            let Ok(place) = usize::try_from(place) else {
                let what = format!("path element at position {position} is out of range: {at}");
                return Err(bad(what));
            };
            if let Some(item) = items.get_mut(place) {
                return put(item, rest, position, new);
            }
            fill(items, place - items.len())?;
            items.push(made(rest, new)?);
            Ok(())
        }
        _ => Err(bad("cannot replace existing key".into())
            .detail("The path assumes key is a composite object, but it is a scalar value.")),
    }
}

/// `(value, path, new, whether the first subscript is an integer)`.
fn assign(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let path: Option<Vec<&str>> = array::of(&a[1]).items.iter().map(Value::as_str).collect();
    let Some(path) = path else {
        let what = "jsonb subscript in assignment must not be null";
        return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, what));
    };
    let mut j = match (&a[0], &a[3]) {
        (Value::Null, Value::Bool(true)) => Json::Array(vec![]),
        (Value::Null, _) => Json::object(vec![]),
        (v, _) => json::of(v)?,
    };
    let new = match &a[2] {
        Value::Null => Json::Null,
        v => json::of(v)?,
    };
    put(&mut j, &path, 0, new)?;
    Ok(j.into_value())
}

/// Adds it.
pub(super) fn register(r: &mut Registry) {
    let args = [JSONB, TEXTARRAY, JSONB, BOOL];
    r.f(super::SET_MEMBER, &args, JSONB, IMM_N, assign);
}
