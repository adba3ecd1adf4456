//! The table is sorted, whatever the case.

use super::*;

#[test]
fn every_setting_is_found() {
    for (i, s) in SETTINGS.iter().enumerate() {
        assert_eq!(find(s.name), Some(i), "{}", s.name);
        assert_eq!(find(&s.name.to_uppercase()), Some(i));
    }
    assert_eq!(find("nonesuch"), None);
}
