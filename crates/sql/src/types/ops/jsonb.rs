//! Operators of `jsonb`, and `->`, `->>`, `#>`, `#>>` of `json`, which give pieces of its text.

use crate::functions::EvalContext;
use crate::types::json::{self, Json};
use crate::types::json_raw;
use base::{Error, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn str_of(v: &Value) -> &str {
    v.as_str().expect("text")
}

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

/// The elements of a text array.
pub fn path(v: &Value) -> Vec<Option<&str>> {
    let Value::Array(a) = v else {
        panic!("an array")
    };
    a.items.iter().map(Value::as_str).collect()
}

fn bad(message: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The value at a path; `None` when there is none.
pub fn walk<'a>(j: &'a Json, path: &[Option<&str>]) -> Option<&'a Json> {
    path.iter().try_fold(j, |j, step| {
        let step = (*step)?;
        match j {
            Json::Object(_) => j.get(step),
            Json::Array(_) => step.trim().parse::<i64>().ok().and_then(|i| j.at(i)),
            _ => None,
        }
    })
}

fn value(j: Option<Json>) -> Value {
    j.map_or(Value::Null, Json::into_value)
}

fn text(j: Option<Json>) -> Value {
    j.map_or(Value::Null, Json::into_text_value)
}

pub fn get_key(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(value(json::of(&a[0])?.get(str_of(&a[1])).cloned()))
}

/// The element of this number. To PostgreSQL a scalar of `jsonb` is an array of one.
fn element<'j>(j: &'j Json, at: &Value) -> Option<&'j Json> {
    match j {
        Json::Object(_) | Json::Array(_) => j.at(int(at)),
        scalar => matches!(int(at), 0 | -1).then_some(scalar),
    }
}

/// The text of a `json`.
pub fn raw(v: &Value) -> Result<&str> {
    match v {
        Value::Json(s) => Ok(s),
        v => Err(Error::internal(format!("{v:?} is no JSON"))),
    }
}

pub fn raw_key(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(json_raw::value(json_raw::member(
        raw(&a[0])?,
        str_of(&a[1]),
    )?))
}

pub fn raw_key_text(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    json_raw::text(json_raw::member(raw(&a[0])?, str_of(&a[1]))?)
}

pub fn raw_index(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(json_raw::value(json_raw::element(raw(&a[0])?, int(&a[1]))?))
}

pub fn raw_index_text(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    json_raw::text(json_raw::element(raw(&a[0])?, int(&a[1]))?)
}

pub fn raw_path(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(json_raw::value(json_raw::walk(raw(&a[0])?, &path(&a[1]))?))
}

pub fn raw_path_text(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    json_raw::text(json_raw::walk(raw(&a[0])?, &path(&a[1]))?)
}

pub fn get_element(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(value(element(&json::of(&a[0])?, &a[1]).cloned()))
}

pub fn get_element_text(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(text(element(&json::of(&a[0])?, &a[1]).cloned()))
}

pub fn get_key_text(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(text(json::of(&a[0])?.get(str_of(&a[1])).cloned()))
}

pub fn get_path(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(value(walk(&json::of(&a[0])?, &path(&a[1])).cloned()))
}

pub fn get_path_text(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(text(walk(&json::of(&a[0])?, &path(&a[1])).cloned()))
}

/// Whether `a` contains `b`.
pub fn contains(a: &Json, b: &Json) -> Result<bool> {
    match (a, b) {
        (Json::Array(x), Json::Array(_)) | (Json::Array(x), _) if !matches!(b, Json::Object(_)) => {
            match b {
                Json::Array(y) => all_in(x, y),
                scalar => Ok(x.contains(scalar)),
            }
        }
        _ => same_kind_contains(a, b),
    }
}

/// Whether each of `y` is contained in one of `x`.
fn all_in(x: &[Json], y: &[Json]) -> Result<bool> {
    for e in y {
        let mut found = false;
        for f in x {
            base::cancel::work(64)?;
            found = same_kind_contains(f, e)?;
            if found {
                break;
            }
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

fn same_kind_contains(a: &Json, b: &Json) -> Result<bool> {
    match (a, b) {
        (Json::Object(_), Json::Object(m)) => {
            for (k, v) in m {
                base::cancel::work(64)?;
                match a.get(k) {
                    Some(w) if same_kind_contains(w, v)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Json::Array(x), Json::Array(y)) => all_in(x, y),
        (Json::String(x), Json::String(y)) => {
            base::cancel::work(x.len().min(y.len()))?;
            Ok(x == y)
        }
        _ => Ok(a == b),
    }
}

pub fn op_contains(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    contains(&json::of(&a[0])?, &json::of(&a[1])?).map(Value::Bool)
}

pub fn op_contained(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    contains(&json::of(&a[1])?, &json::of(&a[0])?).map(Value::Bool)
}

fn has(j: &Json, key: &str) -> bool {
    match j {
        Json::Object(_) => j.get(key).is_some(),
        Json::Array(a) => a.iter().any(|e| matches!(e, Json::String(s) if s == key)),
        Json::String(s) => s == key,
        _ => false,
    }
}

/// What [`has`] looks at, in units of work.
fn width(j: &Json) -> usize {
    match j {
        Json::Array(a) => 8 * a.len(),
        _ => 64,
    }
}

pub fn exists(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::Bool(has(&json::of(&a[0])?, str_of(&a[1]))))
}

pub fn exists_any(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let j = json::of(&a[0])?;
    for k in path(&a[1]).into_iter().flatten() {
        base::cancel::work(width(&j))?;
        if has(&j, k) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

pub fn exists_all(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let j = json::of(&a[0])?;
    for k in path(&a[1]).into_iter().flatten() {
        base::cancel::work(width(&j))?;
        if !has(&j, k) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

pub fn concat(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let joined = match (json::of(&a[0])?, json::of(&a[1])?) {
        (Json::Object(mut x), Json::Object(y)) => {
            x.extend(y);
            Json::object(x)
        }
        (x, y) => {
            let list = |j| match j {
                Json::Array(v) => v,
                j => vec![j],
            };
            let mut all = list(x);
            all.extend(list(y));
            Json::Array(all)
        }
    };
    Ok(joined.into_value())
}

fn delete_keys(mut j: Json, keys: &[&str]) -> Result<Value> {
    let keys: foldhash::HashSet<&str> = keys.iter().copied().collect();
    match &mut j {
        Json::Object(m) => m.retain(|(k, _)| !keys.contains(k.as_str())),
        Json::Array(v) => v.retain(|e| !matches!(e, Json::String(s) if keys.contains(s.as_str()))),
        _ => return Err(bad("cannot delete from scalar")),
    }
    Ok(j.into_value())
}

pub fn delete_key(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    delete_keys(json::of(&a[0])?, &[str_of(&a[1])])
}

pub fn delete_many(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let keys: Vec<&str> = path(&a[1]).into_iter().flatten().collect();
    delete_keys(json::of(&a[0])?, &keys)
}

fn position(len: usize, i: i64) -> Option<usize> {
    let i = if i < 0 { i + len as i64 } else { i };
    usize::try_from(i).ok().filter(|i| *i < len)
}

pub fn delete_index(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut j = json::of(&a[0])?;
    match &mut j {
        Json::Array(v) => {
            if let Some(i) = position(v.len(), int(&a[1])) {
                v.remove(i);
            }
        }
        Json::Object(_) => return Err(bad("cannot delete from object using integer index")),
        _ => return Err(bad("cannot delete from scalar")),
    }
    Ok(j.into_value())
}

pub fn delete_path(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut j = json::of(&a[0])?;
    if !matches!(j, Json::Object(_) | Json::Array(_)) {
        return Err(bad("cannot delete path in scalar"));
    }
    let p = path(&a[1]);
    if !p.is_empty() {
        change(&mut j, &p, 0, &Change::Delete)?;
    }
    Ok(j.into_value())
}

/// What to do at the end of a path.
pub enum Change {
    Delete,
    /// Replaces; puts in what was absent when `create`.
    Set {
        new: Json,
        create: bool,
    },
    /// Inserts before or after an element of an array, or a new key.
    Insert {
        new: Json,
        after: bool,
    },
}

/// Changes the value at a path; a path that does not exist changes nothing.
pub fn change(j: &mut Json, path: &[Option<&str>], depth: usize, what: &Change) -> Result<()> {
    let step = path[depth].ok_or_else(|| {
        Error::new(
            SqlState::NULL_VALUE_NOT_ALLOWED,
            format!("path element at position {} is null", depth + 1),
        )
    })?;
    let last = depth + 1 == path.len();
    match j {
        Json::Object(m) => {
            let at = m.binary_search_by(|p| json::key_order(&p.0, step));
            match (at, last, what) {
                (Ok(i), false, _) => return change(&mut m[i].1, path, depth + 1, what),
                (Ok(i), true, Change::Delete) => {
                    m.remove(i);
                }
                (Ok(i), true, Change::Set { new, .. }) => m[i].1 = new.clone(),
                (Ok(_), true, Change::Insert { .. }) => {
                    return Err(bad("cannot replace existing key")
                        .hint("Try using the function jsonb_set to replace key value."));
                }
                (Err(i), true, Change::Set { new, create: true } | Change::Insert { new, .. }) => {
                    m.insert(i, (step.into(), new.clone()));
                }
                (Err(_), ..) => {}
            }
        }
        Json::Array(v) => {
            let i: i64 = step.trim().parse().map_err(|_| {
                Error::new(
                    SqlState::INVALID_TEXT_REPRESENTATION,
                    format!(
                        "path element at position {} is not an integer: \"{step}\"",
                        depth + 1
                    ),
                )
            })?;
            match (position(v.len(), i), last, what) {
                (Some(k), false, _) => return change(&mut v[k], path, depth + 1, what),
                (Some(k), true, Change::Delete) => {
                    v.remove(k);
                }
                (Some(k), true, Change::Set { new, .. }) => v[k] = new.clone(),
                (Some(k), true, Change::Insert { new, after }) => {
                    v.insert(k + usize::from(*after), new.clone())
                }
                (None, true, Change::Set { new, create: true } | Change::Insert { new, .. }) => {
                    let k = if i < 0 { 0 } else { v.len() };
                    v.insert(k, new.clone());
                }
                (None, ..) => {}
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(a: &str, b: &str) -> bool {
        contains(&json::parse(a).unwrap(), &json::parse(b).unwrap()).unwrap()
    }

    #[test]
    fn containment() {
        assert!(c(r#"{"a":1,"b":[1,2,{"x":3}]}"#, r#"{"b":[{"x":3},1]}"#));
        assert!(c(r#"["foo","bar"]"#, r#""bar""#));
        assert!(!c(r#""bar""#, r#"["bar"]"#));
        assert!(!c(r#"[[1,2]]"#, "[1]"));
        assert!(c("[1,2,3]", "[3,3,1]") && c("1.0", "1") && !c("{}", "[]"));
        assert!(!c(r#"[{"a":1}]"#, r#"{"a":1}"#));
    }
}
