//! Settings that go along when a session's work goes on at another node.
//!
//! What was in force when the transaction began travels as a list of what differs from the defaults; what the transaction changed
//! since, as the changes in their order, so that the other node can undo them as this one would.

use super::{SETTINGS, Scope, Settings, Span};
use compact_str::CompactString;

/// One setting: its name, the value that RESET goes back to, the value in force.
pub type Carried = (String, String, String);

/// A change inside the transaction.
pub struct Change {
    pub name: String,
    pub value: String,
    pub local: bool,
}

impl Settings {
    /// Whether the setting at this place is the session's, and not the node's.
    fn travels(&self, at: usize) -> bool {
        SETTINGS.get(at).is_none_or(|s| {
            matches!(s.scope, Scope::User | Scope::Superuser) && !s.name.starts_with("transaction_")
        })
    }

    /// What was in force when the transaction began, where it differs from the defaults.
    pub fn carried(&self) -> Vec<Carried> {
        let mut start = self.current.clone();
        for u in self.undo.iter().rev() {
            start[u.at] = u.current.clone();
        }
        let differs = |&at: &usize| {
            let default = SETTINGS.get(at).map_or("", |s| s.default);
            self.travels(at) && (start[at] != default || self.base[at] != default)
        };
        let all = (0..start.len()).filter(differs);
        all.map(|at| {
            let name = self.name(at).to_owned();
            (name, self.base[at].to_string(), start[at].to_string())
        })
        .collect()
    }

    /// What the transaction has changed since, in order.
    pub fn changes(&self) -> Vec<Change> {
        let mut out = Vec::new();
        for (i, u) in self.undo.iter().enumerate() {
            let later = self.undo[i + 1..].iter().find(|l| l.at == u.at);
            let (value, local) = match later {
                Some(l) => (&l.current, l.covered.is_some()),
                None => (&self.current[u.at], self.covered.contains_key(&u.at)),
            };
            out.push(Change {
                name: self.name(u.at).to_owned(),
                value: value.to_string(),
                local,
            });
        }
        out
    }

    /// Makes the change here.
    pub fn change(&mut self, c: &Change) {
        let Ok(at) = self.place_or_custom(&c.name) else {
            return;
        };
        let span = if c.local { Span::Local } else { Span::Session };
        // It was valid at the other node, which is of the same version or will be.
        _ = self.put(at, c.value.as_str().into(), span);
    }

    /// Takes these for the session's, and the defaults for all others that travel. Outside of a transaction.
    pub fn take_over(&mut self, list: &[Carried]) {
        for (name, ..) in list {
            _ = self.place_or_custom(name);
        }
        for at in 0..self.current.len() {
            if !self.travels(at) {
                continue;
            }
            let found = list.iter().find(|c| c.0 == self.name(at));
            let default: CompactString = SETTINGS.get(at).map_or("", |s| s.default).into();
            let (base, value) = match found {
                Some((_, base, value)) => (base.as_str().into(), value.as_str().into()),
                None => (default.clone(), default),
            };
            self.base[at] = base;
            if self.current[at] != value {
                _ = self.put(at, value, Span::Session);
            }
        }
        self.undo.clear();
        self.covered.clear();
    }

    /// The client knows all that has changed.
    pub fn told(&mut self) {
        self.changed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(s: &mut Settings, name: &str, v: &str, span: Span) {
        s.set(name, Some(v), span, false).unwrap();
    }

    #[test]
    fn settings_and_the_changes_of_a_transaction_arrive_and_can_be_undone() {
        let mut here = Settings::default();
        here.set_at_start("application_name", "app", false).unwrap();
        set(&mut here, "lock_timeout", "5s", Span::Session);
        set(&mut here, "my.own", "x", Span::Session);
        here.commit();
        set(&mut here, "lock_timeout", "6s", Span::Session);
        set(&mut here, "lock_timeout", "7s", Span::Local);
        set(&mut here, "DateStyle", "German", Span::Local);

        let mut there = Settings::default();
        set(&mut there, "statement_timeout", "1s", Span::Session);
        there.commit();
        there.take_over(&here.carried());
        assert_eq!(there.show("lock_timeout").unwrap(), "5s");
        assert_eq!(there.show("my.own").unwrap(), "x");
        assert_eq!(there.show("statement_timeout").unwrap(), "0");
        here.changes().iter().for_each(|c| there.change(c));
        assert_eq!(there.show("lock_timeout").unwrap(), "7s");
        assert_eq!(there.show("DateStyle").unwrap(), "German, DMY");
        there.commit();
        assert_eq!(there.show("lock_timeout").unwrap(), "6s");
        assert_eq!(there.show("DateStyle").unwrap(), "ISO, MDY");
        set(&mut there, "application_name", "other", Span::Session);
        there.commit();

        // And back: what the transaction did here is undone, then what it did there is taken.
        here.rollback();
        here.take_over(&there.carried());
        assert_eq!(here.show("lock_timeout").unwrap(), "6s");
        assert_eq!(here.show("application_name").unwrap(), "other");
        here.set("application_name", None, Span::Session, false)
            .unwrap();
        assert_eq!(here.show("application_name").unwrap(), "app");
    }
}
