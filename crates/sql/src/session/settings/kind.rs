//! What a setting is: its values, its unit, who may change it.

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Bool,
    /// Bounds in the setting's unit.
    Int(i64, i64, Unit),
    Real(f64, f64),
    /// A time with a fraction of milliseconds.
    RealMilliseconds(f64, f64),
    Enum(&'static [&'static str]),
    Text,
}

/// The unit that a bare number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Milliseconds,
    Kilobytes,
}

/// Who may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    User,
    Superuser,
    /// Fixed while the server runs.
    Internal,
    /// Changed only by the start of the server.
    Postmaster,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub default: &'static str,
    pub kind: Kind,
    pub scope: Scope,
    /// Clients are told of every change.
    pub report: bool,
    pub description: &'static str,
}

impl Setting {
    /// Whether it lives as long as the session and users set it; not the server's own, and not what ends with a transaction.
    pub fn is_of_the_session(&self) -> bool {
        matches!(self.scope, Scope::User | Scope::Superuser)
            && !self.name.starts_with("transaction_")
    }
}
