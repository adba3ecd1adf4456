//! The text format of arrays: `{1,NULL,"a b"}`, `{{1,2},{3,4}}`, `[0:1]={5,6}`; of `int2vector` and `oidvector`: `1 2 3`.

use super::{OutputSettings, text};
use base::{Array, ColumnType, Error, Result, SqlState, Type, Value};
use std::fmt::Write;

const MAX_DIMS: usize = 6;

/// Appends an array.
pub fn write(a: &Array, ty: Type, settings: &OutputSettings, out: &mut String) {
    if matches!(ty, Type::Int2Vector | Type::OidVector) {
        for (i, v) in a.items.iter().enumerate() {
            if i > 0 {
                out.push(' ');
            }
            text::output(v, a.element, settings, out);
        }
        return;
    }
    if a.items.is_empty() {
        return out.push_str("{}");
    }
    if a.dims.iter().any(|d| d.1 != 1) {
        for (len, lower) in &a.dims {
            write!(out, "[{lower}:{}]", lower + len - 1).expect("writing to a string");
        }
        out.push('=');
    }
    let mut at = 0;
    level(a, 0, &mut at, settings, out);
}

fn level(a: &Array, dim: usize, at: &mut usize, settings: &OutputSettings, out: &mut String) {
    out.push('{');
    for i in 0..a.dims[dim].0 {
        if i > 0 {
            out.push(',');
        }
        if dim + 1 < a.dims.len() {
            level(a, dim + 1, at, settings, out);
            continue;
        }
        let v = &a.items[*at];
        *at += 1;
        if v.is_null() {
            out.push_str("NULL");
            continue;
        }
        let from = out.len();
        text::output(v, a.element, settings, out);
        if needs_quotes(&out[from..]) {
            let plain = out.split_off(from);
            out.push('"');
            for c in plain.chars() {
                if matches!(c, '"' | '\\') {
                    out.push('\\');
                }
                out.push(c);
            }
            out.push('"');
        }
    }
    out.push('}');
}

fn needs_quotes(s: &str) -> bool {
    s.is_empty()
        || s.eq_ignore_ascii_case("null")
        || s.bytes()
            .any(|b| matches!(b, b'{' | b'}' | b',' | b'"' | b'\\' | b' ' | 9..=13))
}

/// Reads an array of type `ty`; `typmod` is its elements'.
pub fn read(s: &str, ty: Type, typmod: i32, settings: &OutputSettings) -> Result<Array> {
    let element = ty
        .element()
        .ok_or_else(|| Error::internal("not an array type"))?;
    let element_type = ColumnType {
        ty: element,
        typmod,
    };
    if matches!(ty, Type::Int2Vector | Type::OidVector) {
        let items = s
            .split_whitespace()
            .map(|w| text::input(w, element_type, settings))
            .collect::<Result<Vec<_>>>()?;
        let dims = vec![(items.len() as i32, 0)];
        return Ok(Array {
            element,
            dims,
            items,
        });
    }
    let mut r = Reader {
        whole: s,
        rest: s,
        element: element_type,
        settings,
        items: Vec::new(),
        lengths: Vec::new(),
    };
    let bounds = r.bounds()?;
    r.skip();
    if !r.rest.starts_with('{') {
        return Err(match bounds {
            None => r.bad("Array value must start with \"{\" or dimension information."),
            Some(_) => r.bad("Array contents must start with \"{\"."),
        });
    }
    r.level(0)?;
    r.skip();
    if !r.rest.is_empty() {
        return Err(r.bad("Junk after closing right brace."));
    }
    if r.items.is_empty() {
        return Ok(Array {
            element,
            dims: vec![],
            items: vec![],
        });
    }
    let lengths: Vec<i32> = r.lengths.iter().map(|l| l.unwrap_or(0)).collect();
    let dims: Vec<(i32, i32)> = match bounds {
        None => lengths.into_iter().map(|l| (l, 1)).collect(),
        Some(b) if b.iter().map(|d| d.0).eq(lengths.iter().copied()) => b,
        Some(_) => return Err(r.bad("Specified array dimensions do not match array contents.")),
    };
    Ok(Array {
        element,
        dims,
        items: r.items,
    })
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
    element: ColumnType,
    settings: &'a OutputSettings,
    items: Vec<Value>,
    lengths: Vec<Option<i32>>,
}

impl Reader<'_> {
    fn bad(&self, detail: &str) -> Error {
        Error::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("malformed array literal: \"{}\"", self.whole),
        )
        .detail(detail)
    }

    fn skip(&mut self) {
        self.rest = self
            .rest
            .trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    }

    /// `[1:3][0:1]=`: (length, lower bound) of each dimension.
    fn bounds(&mut self) -> Result<Option<Vec<(i32, i32)>>> {
        self.skip();
        if !self.rest.starts_with('[') {
            return Ok(None);
        }
        let mut out = Vec::new();
        while let Some(r) = self.rest.strip_prefix('[') {
            let (inner, after) = r
                .split_once(']')
                .ok_or_else(|| self.bad("Missing \"]\" after array dimensions."))?;
            let missing =
                || self.bad("\"[\" must introduce explicitly-specified array dimensions.");
            let (lower, upper) = match inner.split_once(':') {
                Some((l, u)) => (l.trim().parse::<i32>(), u.trim().parse::<i32>()),
                None => (Ok(1), inner.trim().parse::<i32>()),
            };
            let (lower, upper) = (lower.map_err(|_| missing())?, upper.map_err(|_| missing())?);
            if upper < lower {
                return Err(Error::new(
                    SqlState::ARRAY_SUBSCRIPT_ERROR,
                    "upper bound cannot be less than lower bound",
                ));
            }
            let len = upper
                .checked_sub(lower)
                .and_then(|n| n.checked_add(1))
                .ok_or_else(missing)?;
            out.push((len, lower));
            self.rest = after;
            self.skip();
        }
        self.rest = self
            .rest
            .strip_prefix('=')
            .ok_or_else(|| self.bad("Missing \"=\" after array dimensions."))?;
        Ok(Some(out))
    }

    fn level(&mut self, dim: usize) -> Result<()> {
        if dim >= MAX_DIMS {
            return Err(Error::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("number of array dimensions exceeds the maximum allowed ({MAX_DIMS})"),
            ));
        }
        let ragged = "Multidimensional arrays must have sub-arrays with matching dimensions.";
        let leaf_here =
            dim < self.lengths.len() && dim + 1 == self.lengths.len() && !self.items.is_empty();
        if dim == self.lengths.len() {
            if !self.items.is_empty() {
                return Err(self.bad(ragged));
            }
            self.lengths.push(None);
        }
        self.rest = &self.rest[1..];
        let mut n = 0;
        loop {
            self.skip();
            match self.rest.chars().next() {
                None => return Err(self.bad("Unexpected end of input.")),
                Some('}') if n == 0 && dim == 0 => break,
                Some('}') if n == 0 => return Err(self.bad("Unexpected \"}\" character.")),
                Some('{') => {
                    if leaf_here {
                        return Err(self.bad(ragged));
                    }
                    self.level(dim + 1)?;
                }
                Some(_) => {
                    if dim + 1 != self.lengths.len() {
                        return Err(self.bad(ragged));
                    }
                    let v = self.element()?;
                    self.items.push(v);
                }
            }
            n += 1;
            self.skip();
            match self.rest.chars().next() {
                Some(',') => self.rest = &self.rest[1..],
                Some('}') => break,
                None => return Err(self.bad("Unexpected end of input.")),
                Some(c) => {
                    return Err(self.bad(&format!("Unexpected \"{c}\" character.")));
                }
            }
            self.skip();
            if self.rest.starts_with('}') {
                return Err(self.bad("Unexpected \"}\" character."));
            }
        }
        self.rest = &self.rest[1..];
        match self.lengths[dim] {
            None => self.lengths[dim] = Some(n),
            Some(m) if m == n => {}
            Some(_) => return Err(self.bad(ragged)),
        }
        Ok(())
    }

    fn element(&mut self) -> Result<Value> {
        let mut word = String::new();
        if let Some(r) = self.rest.strip_prefix('"') {
            let mut it = r.char_indices();
            loop {
                match it.next() {
                    None => return Err(self.bad("Unexpected end of input.")),
                    Some((_, '\\')) => match it.next() {
                        Some((_, c)) => word.push(c),
                        None => return Err(self.bad("Unexpected end of input.")),
                    },
                    Some((i, '"')) => {
                        self.rest = &r[i + 1..];
                        break;
                    }
                    Some((_, c)) => word.push(c),
                }
            }
        } else {
            let mut it = self.rest.char_indices();
            let mut escaped = false;
            // Blanks at the end do not count, unless they are escaped.
            let mut keep = 0;
            loop {
                match it.next() {
                    None => return Err(self.bad("Unexpected end of input.")),
                    Some((_, '\\')) => match it.next() {
                        Some((_, c)) => {
                            word.push(c);
                            keep = word.len();
                            escaped = true;
                        }
                        None => return Err(self.bad("Unexpected end of input.")),
                    },
                    Some((_, c @ ('{' | '"'))) => {
                        return Err(self.bad(&format!("Unexpected \"{c}\" character.")));
                    }
                    Some((i, ',' | '}')) => {
                        self.rest = &self.rest[i..];
                        break;
                    }
                    Some((_, c)) => {
                        word.push(c);
                        if !c.is_ascii_whitespace() {
                            keep = word.len();
                        }
                    }
                }
            }
            word.truncate(keep);
            if word.is_empty() {
                let c = self.rest.chars().next().unwrap_or('}');
                return Err(self.bad(&format!("Unexpected \"{c}\" character.")));
            }
            if !escaped && word.eq_ignore_ascii_case("null") {
                return Ok(Value::Null);
            }
        }
        text::input(&word, self.element, self.settings)
    }
}
