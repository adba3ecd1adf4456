//! A walk through the whole registry: no function and no operator can hold a session that was told to stop.
//!
//! Each is called with long and odd values of its argument types while its statement is cancelled. The call must end: at its first look at the
//! flag, or because its work is in proportion to its input. Work that grows faster than the input and never looks would run for hours here. The
//! values are made so that a linear pass takes milliseconds and a quadratic one minutes.
//!
//! Left out on purpose: aggregates and window functions, which take a row at a time and whose loop looks, and how soon a function stops (`testing` counts that for the
//! known cases).

use super::registry::{all_functions, all_operators};
use super::signature::{Entry, Sig};
use super::{EvalContext, Kind, NoSession, Resolved, lookup_function, lookup_operator};
use crate::types::{OutputSettings, text};
use base::cancel::{Interrupt, enter};
use base::{ColumnType, Type, Value};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Length of texts and arrays. A quadratic pass over it takes 10^10 steps.
const LONG: usize = 100_000;
/// Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(90);
/// Kinds of values of each type.
const KINDS: usize = 4;

fn concrete(s: Sig) -> Type {
    match s {
        Sig::Is(t) => t,
        Sig::AnyElement | Sig::AnyCompatible => Type::Int4,
        Sig::AnyEnum => Type::User(base::user_type::intern(1, 2, "walked", &[])),
        Sig::AnyArray | Sig::AnyCompatibleArray => Type::Int4Array,
        Sig::AnyNonArray | Sig::AnyCompatibleNonArray | Sig::Any => Type::Text,
    }
}

/// The text of a hostile value.
fn hostile(t: Type, kind: usize) -> String {
    let list = |of: &str, n: usize| format!("{{{}}}", vec![of; n].join(","));
    let pick = |all: [&str; KINDS]| all[kind].to_owned();
    if let Some(of) = t.element() {
        return match kind {
            0 => list(&hostile(of, 2), LONG / 10),
            1 => list(&hostile(of, 3), LONG / 10),
            2 => "{}".into(),
            _ => list("NULL", LONG / 10),
        };
    }
    match t {
        Type::Bool => pick(["t", "f", "t", "f"]),
        Type::Int2 => pick(["32767", "-32768", "1", "7"]),
        Type::Int4 => pick(["2147483647", "-2147483648", "1", "1000"]),
        Type::Int8 => pick(["9223372036854775807", "-9223372036854775808", "1", "1000"]),
        Type::Float4 => pick(["3e38", "-1e-38", "1", "NaN"]),
        Type::Float8 => pick(["1e308", "-1e-308", "1", "Infinity"]),
        Type::Numeric => match kind {
            0 => "9".repeat(100_000),
            1 => format!("0.{}1", "0".repeat(16_000)),
            2 => "1".into(),
            _ => "2.5".into(),
        },
        Type::Bytea => match kind {
            0 => format!("\\x{}", "00".repeat(LONG)),
            1 => format!("\\x{}", "61".repeat(LONG)),
            2 => "\\x00".into(),
            _ => "\\x".into(),
        },
        Type::Json | Type::Jsonb => match kind {
            0 => format!("[{}1]", "1,".repeat(LONG / 4)),
            1 => format!("{}1{}", "[".repeat(500), "]".repeat(500)),
            2 => "{}".into(),
            _ => format!(
                "{{{}}}",
                (0..LONG / 10)
                    .map(|n| format!("\"k{n}\":{n}"))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
        },
        Type::Date => pick(["5874897-12-31", "4713-01-01 BC", "2000-02-29", "1970-01-01"]),
        Type::Timestamp | Type::TimestampTz => pick([
            "294276-12-31 23:59:59",
            "4713-01-01 00:00:00 BC",
            "2000-02-29",
            "infinity",
        ]),
        Type::Time => pick(["24:00:00", "00:00:00", "12:34:56.789", "23:59:59"]),
        Type::Interval => pick([
            "178000000 years",
            "-178000000 years",
            "1 microsecond",
            "1 month -1 day 1 second",
        ]),
        Type::Uuid => "00000000-0000-0000-0000-000000000001".into(),
        _ => match kind {
            0 => "a".repeat(LONG),
            1 => format!("{}b", "a%_".repeat(LONG / 3)),
            2 => "(a*)*b".into(),
            _ => "FM999,YYYY-MM-DD%s%1$s".into(),
        },
    }
}

struct Walk {
    values: HashMap<(Type, usize), Option<Value>>,
    settings: OutputSettings,
    /// What is called now, and since when.
    now: Arc<Mutex<(String, Instant)>>,
    calls: usize,
}

impl Walk {
    fn value(&mut self, t: Type, kind: usize) -> Option<Value> {
        let settings = &self.settings;
        let made = self.values.entry((t, kind)).or_insert_with(|| {
            // What a type does not take is no value of it.
            text::input(&hostile(t, kind), ColumnType::plain(t), settings).ok()
        });
        made.clone()
    }

    fn call(&mut self, what: &str, r: &Resolved, types: &[Type], kinds: &[usize]) {
        let Some(values) = types
            .iter()
            .zip(kinds)
            .map(|(t, k)| self.value(*t, *k))
            .collect::<Option<Vec<_>>>()
        else {
            return;
        };
        *self.now.lock().unwrap() = (format!("{what} with values {kinds:?}"), Instant::now());
        self.calls += 1;
        let mut ctx = EvalContext {
            settings: &self.settings,
            session: &NoSession,
        };
        // Errors are fine: it has ended.
        if let Kind::SetReturning(_) = r.kind {
            if let Ok(mut rows) = r.rows(&values, &mut ctx) {
                let mut row = Vec::new();
                // The executor looks between rows.
                for _ in 0..10 {
                    if !matches!(rows.next(&mut row), Ok(true)) {
                        break;
                    }
                }
            }
        } else {
            _ = r.call(&values, &mut ctx);
        }
    }

    fn walk(&mut self, e: &Entry, find: impl Fn(&[Type]) -> base::Result<Resolved>) {
        let types: Vec<Type> = e.args.iter().map(|s| concrete(*s)).collect();
        let shown: Vec<_> = types.iter().map(|t| t.typname()).collect();
        let what = format!("{}({})", e.name, shown.join(", "));
        let Ok(r) = find(&types) else {
            panic!("{what} is in the registry and is not found");
        };
        // Two arguments in all ways; of more the first two, and the others like the first.
        let second = if types.len() > 1 { KINDS } else { 1 };
        for a in 0..KINDS {
            for b in 0..second {
                let kinds: Vec<usize> = (0..types.len())
                    .map(|n| if n == 1 { b } else { a })
                    .collect();
                self.call(&what, &r, &types, &kinds);
            }
        }
    }
}

#[test]
fn nothing_in_the_registry_holds_a_session_that_was_told_to_stop() {
    let now = Arc::new(Mutex::new((String::new(), Instant::now())));
    let said = now.clone();
    let walker = std::thread::Builder::new().stack_size(64 << 20);
    let walker = walker.spawn(move || {
        let flag = Arc::new(Interrupt::default());
        flag.0.store(Interrupt::CANCEL, Ordering::Relaxed);
        let _now = enter(flag);
        let mut walk = Walk {
            values: HashMap::new(),
            settings: OutputSettings::default(),
            now: said,
            calls: 0,
        };
        for e in all_functions().filter(|e| !matches!(e.kind, Kind::Aggregate(_) | Kind::Window(_)))
        {
            walk.walk(e, |types| lookup_function(e.name, types));
        }
        for e in all_operators() {
            walk.walk(e, |types| match types {
                [l, r] => lookup_operator(e.name, Some(*l), *r),
                [r] => lookup_operator(e.name, None, *r),
                _ => panic!("{} has {} operands", e.name, types.len()),
            });
        }
        walk.calls
    });
    let walker = walker.expect("a thread");
    while !walker.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
        let (what, since) = now.lock().unwrap().clone();
        assert!(since.elapsed() < PATIENCE, "{what} does not stop");
    }
    let calls = walker.join().expect("no call panics");
    assert!(calls > 3000, "{calls} calls");
}
