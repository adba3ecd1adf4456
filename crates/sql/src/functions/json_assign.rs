//! Assignment to a part of a `jsonb` value: `SET j['a'][2] = '7'`.
//!
//! What the path leads through is made where it is missing: an array for a step that is a number, filled up with null, else an object. A NULL
//! value is an empty object, or an empty array where the first subscript is an integer. A step into what is no object and no array is refused.
//!
//! A short statement can ask for much: nulls in each of many arrays, or a path of more steps than the stack has room for. So there are bounds
//! that PostgreSQL does not have: on the nulls of one assignment (54000) and on the depth of the value that comes out (54001).

use super::EvalContext;
use super::registry::{Registry, names::*};
use super::string::{MAX, too_large};
use crate::types::json::{self, Json, MAX_DEPTH};
use crate::types::ops::array;
use base::{Error, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// Most nulls that an assignment behind the end of arrays adds, in all of them together.
const MOST_NULLS: usize = 1 << 20;

fn bad(what: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

/// An assignment under way.
struct Assignment {
    /// Nulls that it may still add.
    nulls: usize,
}

impl Assignment {
    /// `count` nulls at the end.
    fn fill(&mut self, items: &mut Vec<Json>, count: usize) -> Result<()> {
        self.nulls = self.nulls.checked_sub(count).ok_or_else(|| {
            let what = format!("an assignment that adds more than {MOST_NULLS} nulls");
            Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what)
        })?;
        items.resize(items.len() + count, Json::Null);
        Ok(())
    }

    /// What stands at the end of a path that leads nowhere yet.
    fn made(&mut self, path: &[&str], new: Json) -> Result<Json> {
        let Some((first, rest)) = path.split_first() else {
            return Ok(new);
        };
        let inner = self.made(rest, new)?;
        Ok(match first.parse::<i32>() {
            Ok(at) => {
                let mut items = vec![];
                self.fill(&mut items, usize::try_from(at).unwrap_or(0))?;
                items.push(inner);
                Json::Array(items)
            }
            Err(_) => Json::object(vec![((*first).to_owned(), inner)]),
        })
    }

    /// `level`: steps taken so far.
    fn put(&mut self, j: &mut Json, path: &[&str], level: usize, new: Json) -> Result<()> {
        let Some((first, rest)) = path.split_first() else {
            *j = new;
            return Ok(());
        };
        let position = level + 1;
        match j {
            Json::Object(members) => {
                if let Some(member) = members.iter_mut().find(|m| m.0 == *first) {
                    return self.put(&mut member.1, rest, position, new);
                }
                let mut members = std::mem::take(members);
                members.push(((*first).to_owned(), self.made(rest, new)?));
                *j = Json::object(members);
                Ok(())
            }
            Json::Array(items) => {
                let at: i32 = first.parse().map_err(|_| {
                    let what = format!(
                        "path element at position {position} is not an integer: \"{first}\""
                    );
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
                    return self.put(item, rest, position, new);
                }
                self.fill(items, place - items.len())?;
                items.push(self.made(rest, new)?);
                Ok(())
            }
            _ => Err(bad("cannot replace existing key".into())
                .detail("The path assumes key is a composite object, but it is a scalar value.")),
        }
    }
}

/// How many arrays and objects stand in each other.
fn depth(j: &Json) -> usize {
    match j {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Json::Object(members) => 1 + members.iter().map(|m| depth(&m.1)).max().unwrap_or(0),
        _ => 0,
    }
}

/// The value with `new` at the end of the path.
fn assigned(mut j: Json, path: &[&str], new: Json) -> Result<Json> {
    if path.len() + depth(&new) > MAX_DEPTH {
        let what = "stack depth limit exceeded";
        return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, what));
    }
    Assignment { nulls: MOST_NULLS }.put(&mut j, path, 0, new)?;
    Ok(j)
}

/// `(value, path, new, whether the first subscript is an integer)`.
fn assign(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let path: Option<Vec<&str>> = array::of(&a[1]).items.iter().map(Value::as_str).collect();
    let Some(path) = path else {
        let what = "jsonb subscript in assignment must not be null";
        return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, what));
    };
    let j = match (&a[0], &a[3]) {
        (Value::Null, Value::Bool(true)) => Json::Array(vec![]),
        (Value::Null, _) => Json::object(vec![]),
        (v, _) => json::of(v)?,
    };
    let new = match &a[2] {
        Value::Null => Json::Null,
        v => json::of(v)?,
    };
    let text = assigned(j, &path, new)?.to_text();
    match text.len() > MAX {
        true => Err(too_large()),
        false => Ok(Value::Json(text.into())),
    }
}

/// Adds it.
pub(super) fn register(r: &mut Registry) {
    let args = [JSONB, TEXTARRAY, JSONB, BOOL];
    r.f(super::SET_MEMBER, &args, JSONB, IMM_N, assign);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_assignment_makes_is_bounded() {
        let of = |path: &[&str]| {
            let made = assigned(Json::Array(vec![]), path, Json::Bool(true));
            made.map(|j| j.to_text()).map_err(|e| e.code())
        };
        assert_eq!(of(&["1", "1"]), Ok("[null, [null, true]]".into()));
        // The nulls of all arrays count.
        let nulls = of(&["600000", "600000"]);
        assert_eq!(nulls, Err(SqlState::PROGRAM_LIMIT_EXCEEDED));
        let steps = |n| of(&vec!["0"; n]).map(drop);
        assert_eq!(steps(MAX_DEPTH), Ok(()));
        let deeper = steps(MAX_DEPTH + 1);
        assert_eq!(deeper, Err(SqlState::STATEMENT_TOO_COMPLEX));
    }
}
