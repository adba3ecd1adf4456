//! Values that are kept as bytes: bit strings, network addresses, times with a zone.
//!
//! A [`PackedValue`] has a kind and a form. The form is what stands in a row. Everything that depends on the kind and needs no
//! settings is decided here: which bytes are a form, their order, their key, their text and their binary format on the wire.
//! So a further type of this sort is a module beside these, a line in each function below, a line in [`crate::types`], and its operators.
//!
//! | kind | form |
//! |---|---|
//! | `bit`, `varbit` | unused bits of the last byte, bytes from the first bit on: [`bits`] |
//! | `inet`, `cidr` | family, bits of the mask, address: [`inet`] |
//! | `macaddr`, `macaddr8` | the bytes: [`mac`] |
//! | `timetz` | moment in UTC, zone: [`timetz`] |
//! | `citext` | the text: [`citext`] |
//!
//! Left out on purpose: reading `timetz`, which asks the session for its zone and stands in `sql`.

pub mod bits;
pub mod citext;
mod errors;
pub mod inet;
pub mod mac;
pub mod timetz;

use crate::error::Result;
use crate::types::Type;
use errors::malformed;
use inet::Inet;
use std::cmp::Ordering;
use std::fmt;

/// The types that are kept so.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packed {
    Bit,
    VarBit,
    Inet,
    Cidr,
    MacAddr,
    MacAddr8,
    TimeTz,
    Citext,
}

/// The kinds in the order of their numbers.
const KINDS: [Packed; 8] = [
    Packed::Bit,
    Packed::VarBit,
    Packed::Inet,
    Packed::Cidr,
    Packed::MacAddr,
    Packed::MacAddr8,
    Packed::TimeTz,
    Packed::Citext,
];

/// A value of such a type: its form, then a byte with the number of its kind. With the kind beside the bytes instead of behind them,
/// a [`Value`](crate::Value) would take 32 bytes.
#[derive(Clone)]
pub struct PackedValue(Box<[u8]>);

impl PackedValue {
    /// The value of this kind with this form.
    pub fn new(kind: Packed, form: &[u8]) -> PackedValue {
        PackedValue([form, &[kind as u8]].concat().into())
    }

    /// Its kind.
    pub fn kind(&self) -> Packed {
        KINDS[usize::from(self.0[self.0.len() - 1])]
    }

    /// Its form.
    pub fn form(&self) -> &[u8] {
        &self.0[..self.0.len() - 1]
    }
}

impl fmt::Debug for PackedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.kind().write_text(self.form(), &mut text);
        write!(f, "{:?}({text})", self.kind())
    }
}

impl Packed {
    /// The kind of this type's values, if they are kept so.
    pub const fn of(ty: Type) -> Option<Packed> {
        Some(match ty {
            Type::Bit => Packed::Bit,
            Type::VarBit => Packed::VarBit,
            Type::Inet => Packed::Inet,
            Type::Cidr => Packed::Cidr,
            Type::MacAddr => Packed::MacAddr,
            Type::MacAddr8 => Packed::MacAddr8,
            Type::TimeTz => Packed::TimeTz,
            Type::Citext => Packed::Citext,
            _ => return None,
        })
    }

    /// The type of these values.
    pub const fn ty(self) -> Type {
        match self {
            Packed::Bit => Type::Bit,
            Packed::VarBit => Type::VarBit,
            Packed::Inet => Type::Inet,
            Packed::Cidr => Type::Cidr,
            Packed::MacAddr => Type::MacAddr,
            Packed::MacAddr8 => Type::MacAddr8,
            Packed::TimeTz => Type::TimeTz,
            Packed::Citext => Type::Citext,
        }
    }

    /// Whether these bytes are a form of this kind.
    pub fn is_form(self, b: &[u8]) -> bool {
        match self {
            Packed::Bit | Packed::VarBit => bits::is_form(b),
            Packed::Inet | Packed::Cidr => Inet::of(b).is_some(),
            Packed::MacAddr => b.len() == 6,
            Packed::MacAddr8 => b.len() == 8,
            Packed::TimeTz => b.len() == timetz::WIDTH,
            Packed::Citext => std::str::from_utf8(b).is_ok(),
        }
    }

    /// Orders two forms of this kind as PostgreSQL orders the values.
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Packed::Bit | Packed::VarBit => bits::compare(a, b),
            Packed::Inet | Packed::Cidr => inet::expect(a).order().cmp(&inet::expect(b).order()),
            Packed::MacAddr | Packed::MacAddr8 | Packed::TimeTz => a.cmp(b),
            Packed::Citext => citext::compare(a, b),
        }
    }

    /// Appends the value's key bytes. They have the order of [`Packed::compare`], and the bytes of one value are never the beginning of those of another.
    pub fn write_key(self, form: &[u8], out: &mut Vec<u8>) {
        match self {
            Packed::Bit | Packed::VarBit => bits::write_key(form, out),
            Packed::Inet | Packed::Cidr => inet::expect(form).write_key(out),
            Packed::MacAddr | Packed::MacAddr8 | Packed::TimeTz => out.extend_from_slice(form),
            Packed::Citext => citext::write_key(form, out),
        }
    }

    /// Appends the text that SELECT shows.
    pub fn write_text(self, form: &[u8], out: &mut String) {
        match self {
            Packed::Bit | Packed::VarBit => bits::write(form, out),
            Packed::Inet => inet::expect(form).write(false, out),
            Packed::Cidr => inet::expect(form).write(true, out),
            Packed::MacAddr | Packed::MacAddr8 => mac::write(form, out),
            Packed::TimeTz => timetz::write(form, out),
            Packed::Citext => out.push_str(citext::text(form)),
        }
    }

    /// The form that a text means; 22P02 for what is none.
    pub fn read_text(self, s: &str) -> Result<Box<[u8]>> {
        Ok(match self {
            Packed::Bit | Packed::VarBit => bits::read(s)?,
            Packed::Inet => inet::read(s, false)?.form(),
            Packed::Cidr => inet::read(s, true)?.form(),
            Packed::MacAddr => mac::read(s)?.into(),
            Packed::MacAddr8 => mac::read8(s)?.into(),
            Packed::TimeTz => unreachable!("the session's zone is needed"),
            Packed::Citext => s.as_bytes().into(),
        })
    }

    /// Appends the binary format of the wire.
    pub fn write_binary(self, form: &[u8], out: &mut Vec<u8>) {
        match self {
            Packed::Bit | Packed::VarBit => {
                out.extend_from_slice(&(bits::len(form) as u32).to_be_bytes());
                out.extend_from_slice(&form[1..]);
            }
            Packed::Inet | Packed::Cidr => {
                inet::expect(form).write_binary(self == Packed::Cidr, out)
            }
            Packed::MacAddr | Packed::MacAddr8 | Packed::Citext => out.extend_from_slice(form),
            Packed::TimeTz => {
                let (local, west) = timetz::parts(form);
                out.extend_from_slice(&local.to_be_bytes());
                out.extend_from_slice(&west.to_be_bytes());
            }
        }
    }

    /// Reads the binary format of the wire; 22P03 when it is malformed.
    pub fn read_binary(self, b: &[u8]) -> Result<Box<[u8]>> {
        match self {
            Packed::Bit | Packed::VarBit => bits::read_binary(b),
            Packed::Inet => Ok(Inet::read_binary(b, false)?.form()),
            Packed::Cidr => Ok(Inet::read_binary(b, true)?.form()),
            Packed::MacAddr if b.len() == 6 => Ok(b.into()),
            Packed::MacAddr8 if b.len() == 8 => Ok(b.into()),
            Packed::MacAddr8 if b.len() == 6 => {
                Ok(mac::widen(b.try_into().expect("six bytes")).into())
            }
            Packed::MacAddr | Packed::MacAddr8 => Err(malformed()),
            Packed::TimeTz => timetz::read_binary(b),
            Packed::Citext => Ok(crate::text(b)?.as_bytes().into()),
        }
    }

    /// The form as a column with this modifier holds it. Lengths that do not fit are 22026 (`bit`) or 22001 (`varbit`).
    pub fn fit(self, form: Box<[u8]>, typmod: i32) -> Result<Box<[u8]>> {
        match self {
            Packed::Bit | Packed::VarBit if typmod > 0 => {
                bits::check(self == Packed::Bit, &form, typmod as usize)?;
                Ok(form)
            }
            Packed::TimeTz => Ok(timetz::round(form, typmod)),
            _ => Ok(form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascending(kind: Packed, texts: &[&str]) {
        let forms: Vec<_> = texts.iter().map(|s| kind.read_text(s).unwrap()).collect();
        for w in forms.windows(2) {
            assert_eq!(kind.compare(&w[0], &w[1]), Ordering::Less, "{w:?}");
            let key = |f: &[u8]| {
                let mut out = vec![];
                kind.write_key(f, &mut out);
                out
            };
            assert!(key(&w[0]) < key(&w[1]), "{w:?}");
        }
    }

    #[test]
    fn keys_order_as_the_values_do() {
        ascending(
            Packed::VarBit,
            &[
                "",
                "0",
                "00",
                "000000000",
                "01",
                "1",
                "10",
                "100000000",
                "11",
            ],
        );
        ascending(
            Packed::Inet,
            &[
                "0.0.0.0/0",
                "10.0.0.0/8",
                "10.1.2.3/8",
                "10.0.0.0/16",
                "10.0.0.0",
                "10.0.0.1",
                "10.1.0.0/16",
                "192.168.1.1",
                "::",
                "::1",
                "fe80::/10",
            ],
        );
        ascending(Packed::Citext, &["", "A", "ab", "ABC", "b"]);
        assert_eq!(Packed::Citext.compare(b"aBc", b"AbC"), Ordering::Equal);
        ascending(Packed::MacAddr, &["00:00:00:00:00:01", "08:00:2b:01:02:03"]);
    }

    #[test]
    fn a_value_keeps_its_kind_and_form() {
        for kind in KINDS {
            assert_eq!(Packed::of(kind.ty()), Some(kind));
            let v = PackedValue::new(kind, b"any bytes");
            assert_eq!((v.kind(), v.form()), (kind, &b"any bytes"[..]));
        }
    }

    #[test]
    fn forms_go_over_the_wire_and_damaged_ones_are_refused() {
        for (kind, text) in [
            (Packed::Bit, "10110"),
            (Packed::VarBit, ""),
            (Packed::Inet, "10.1.2.3/8"),
            (Packed::Inet, "fe80::1/64"),
            (Packed::Cidr, "10.0.0.0/8"),
            (Packed::MacAddr, "08:00:2b:01:02:03"),
            (Packed::MacAddr8, "08:00:2b:ff:fe:01:02:03"),
        ] {
            let form = kind.read_text(text).unwrap();
            assert!(kind.is_form(&form));
            let (mut s, mut wire) = (String::new(), vec![]);
            kind.write_text(&form, &mut s);
            assert_eq!(s, text);
            kind.write_binary(&form, &mut wire);
            assert_eq!(kind.read_binary(&wire).unwrap(), form);
            for n in 0..wire.len() {
                // Six bytes are an address of the other kind, too.
                assert!(
                    kind.read_binary(&wire[..n]).is_err() || n == 6,
                    "{text} cut at {n}"
                );
            }
        }
        assert!(
            Packed::Cidr
                .read_binary(&[2, 8, 1, 4, 10, 1, 0, 0])
                .is_err()
        );
        assert!(!Packed::Bit.is_form(&[8, 0]) && !Packed::Bit.is_form(&[1]));
        assert!(!Packed::Bit.is_form(&[4, 0x08]) && !Packed::Inet.is_form(&[4, 33, 0, 0, 0, 0]));
    }
}
