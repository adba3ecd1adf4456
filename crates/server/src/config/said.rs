//! What is said about one setting, and how it is read: as a text, a number, a time, a size.
//!
//! A value that cannot be read is refused with 22023; the message names the key of the file and shows the value, unless it holds a
//! password.
//!
//! Left out on purpose: what a single setting may be (`super`), and what several must be together (`Config::fits`).

use super::secrets::without_password;
use base::units::{duration, size};
use base::{Error, Result, SqlState};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// 22023.
pub fn bad(key: &str, value: &str, why: &str) -> Error {
    let value = without_password(value);
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("{key} = {value:?}: {why}"),
    )
}

/// A setting: the key that it has in the file, and what a flag, a variable, the file or its default say; the first that speaks is heard.
pub struct Said<T> {
    pub key: &'static str,
    pub value: Option<T>,
}

impl<T: ToString> Said<T> {
    /// 22023 for this setting.
    pub fn bad(&self, why: &str) -> Error {
        let value = self.value.as_ref().map(T::to_string);
        bad(self.key, &value.unwrap_or_default(), why)
    }
}

impl Said<String> {
    /// Empty where nothing is said.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or("")
    }

    /// An empty text says nothing.
    pub fn if_any(&self) -> Option<&str> {
        Some(self.text()).filter(|t| !t.is_empty())
    }

    pub fn time(&self) -> Result<Duration> {
        duration(self.text()).ok_or_else(|| self.bad("a time such as 500ms, 30s, 5min, 1h"))
    }

    /// One of several that have names.
    pub fn named<T: FromStr>(&self, names: &str) -> Result<T> {
        self.text().parse().map_err(|_| self.bad(names))
    }

    /// Bytes, one at least.
    pub fn size(&self) -> Result<u64> {
        let found = size(self.text()).filter(|n| *n > 0);
        found.ok_or_else(|| self.bad("a size such as 512MB or 8GB"))
    }
}

impl Said<u32> {
    /// The number; 0 where nothing is said.
    pub fn within(&self, range: RangeInclusive<u32>) -> Result<u32> {
        let n = self.value.unwrap_or(0);
        match range.contains(&n) {
            true => Ok(n),
            false => Err(self.bad(&format!("{} to {}", range.start(), range.end()))),
        }
    }
}

impl Said<bool> {
    pub fn is_on(&self) -> bool {
        self.value.unwrap_or(false)
    }
}

impl Said<PathBuf> {
    /// An empty path says nothing.
    pub fn path(&self) -> Option<PathBuf> {
        self.value.clone().filter(|p| !p.as_os_str().is_empty())
    }
}
