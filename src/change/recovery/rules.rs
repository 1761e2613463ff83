//! Expiry of entries of `tine recover`, by age and size.

use tine_git::Repository;

const DAY_SECS: i64 = 24 * 60 * 60;

/// Limits for entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoverRules {
    /// Age in seconds at which an entry expires; `None`: never.
    pub max_age_secs: Option<u64>,
    /// Bytes that all entries may keep; `None`: any number.
    pub max_bytes: Option<u64>,
}

impl Default for RecoverRules {
    fn default() -> RecoverRules {
        RecoverRules {
            max_age_secs: Some(90 * DAY_SECS.unsigned_abs()),
            max_bytes: Some(10 << 30),
        }
    }
}

/// Setting of git with the maximum age of entries.
pub const AGE_KEY: &str = "tine.recoverAge";
/// Setting of git with the maximum size of all entries.
pub const SIZE_KEY: &str = "tine.recoverSize";

impl RecoverRules {
    /// Reads the limits from git's configuration.
    ///
    /// # Errors
    /// A message about a setting that cannot be parsed.
    pub fn configured(repository: &Repository) -> Result<RecoverRules, String> {
        let mut rules = RecoverRules::default();
        if let Some(word) = repository.config_string(AGE_KEY) {
            rules.max_age_secs = parse_age(&word).ok_or_else(|| {
                format!("{AGE_KEY} is {word:?}, which is neither a time (90d, 12h) nor `never`")
            })?;
        }
        if let Some(word) = repository.config_string(SIZE_KEY) {
            rules.max_bytes = parse_size(&word).ok_or_else(|| {
                format!(
                    "{SIZE_KEY} is {word:?}, which is neither a size (500m, 10g) nor `unlimited`"
                )
            })?;
        }
        Ok(rules)
    }

    /// Returns the numbers of the entries that expire at `now_secs`.
    ///
    /// `entries` have number, time of dropping and bytes. Those that are too old expire first, then the oldest
    /// until the rest is small enough. An entry younger than a day does not expire by size.
    pub fn outdated(&self, entries: &[(u64, i64, u64)], now_secs: i64) -> Vec<u64> {
        let age_of = |kept_secs: i64| now_secs.saturating_sub(kept_secs);
        let is_too_old = |kept_secs| {
            self.max_age_secs
                .is_some_and(|max| age_of(kept_secs) >= i64::try_from(max).unwrap_or(i64::MAX))
        };
        let (old, mut young): (Vec<_>, Vec<_>) = entries
            .iter()
            .copied()
            .partition(|(_, kept_secs, _)| is_too_old(*kept_secs));
        let mut outdated: Vec<u64> = old.into_iter().map(|(id, ..)| id).collect();
        young.sort_by_key(|(id, kept_secs, _)| (*kept_secs, *id));
        let mut total = young
            .iter()
            .fold(0, |sum: u64, (.., bytes)| sum.saturating_add(*bytes));
        for (id, kept_secs, bytes) in young {
            let fits = self.max_bytes.is_none_or(|max| total <= max);
            if fits || age_of(kept_secs) < DAY_SECS {
                break;
            }
            outdated.push(id);
            total = total.saturating_sub(bytes);
        }
        outdated
    }
}

/// Parses an age into seconds: `90d`, `12h`, `never`.
///
/// The units are `s`, `m`, `h`, `d` and `w`; a bare number is in days. The inner `None` is `never`,
/// the outer one an error.
pub fn parse_age(word: &str) -> Option<Option<u64>> {
    if word == "never" {
        return Some(None);
    }
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match word.get(digits.len()..)? {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "" | "d" => DAY_SECS.unsigned_abs(),
        "w" => 7 * DAY_SECS.unsigned_abs(),
        _ => return None,
    };
    Some(Some(digits.parse::<u64>().ok()?.checked_mul(factor)?))
}

/// Parses a size into bytes as git does: `500m`, `10g`, `unlimited`.
///
/// The units are `k`, `m` and `g`; a bare number is in bytes. The inner `None` is `unlimited`, the
/// outer one an error.
fn parse_size(word: &str) -> Option<Option<u64>> {
    if word == "unlimited" {
        return Some(None);
    }
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match word.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    Some(Some(digits.parse::<u64>().ok()?.checked_mul(factor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_read_as_people_write_them() {
        assert_eq!(parse_age("90d"), Some(Some(90 * 86_400)));
        assert_eq!(parse_age("2"), Some(Some(2 * 86_400)));
        assert_eq!(parse_age("0"), Some(Some(0)));
        assert_eq!(parse_age("12h"), Some(Some(12 * 3600)));
        assert_eq!(parse_age("never"), Some(None));
        for wrong in ["", "d", "-1d", "1y", "soon", "99999999999999999999d"] {
            assert_eq!(parse_age(wrong), None, "{wrong}");
        }
        assert_eq!(parse_size("10g"), Some(Some(10 << 30)));
        assert_eq!(parse_size("500M"), Some(Some(500 << 20)));
        assert_eq!(parse_size("0"), Some(Some(0)));
        assert_eq!(parse_size("unlimited"), Some(None));
        for wrong in ["", "g", "1t", "-1", "much"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_too_old_goes_and_then_the_oldest_until_the_rest_is_small_enough() {
        let now = 1000 * DAY_SECS;
        let entries = |ages: &[(i64, u64)]| -> Vec<(u64, i64, u64)> {
            let numbered = (1..).zip(ages);
            numbered
                .map(|(id, (age_days, bytes))| (id, now - age_days * DAY_SECS, *bytes))
                .collect()
        };
        let rules = |max_age_days: Option<u64>, max_bytes| RecoverRules {
            max_age_secs: max_age_days.map(|days| days * 86_400),
            max_bytes,
        };
        let some = entries(&[(91, 1), (90, 1), (89, 10), (3, 10), (0, 10)]);
        assert_eq!(rules(Some(90), None).outdated(&some, now), [1, 2]);
        assert!(rules(None, None).outdated(&some, now).is_empty());
        assert_eq!(rules(Some(0), None).outdated(&some, now), [1, 2, 3, 4, 5]);
        assert_eq!(rules(Some(90), Some(20)).outdated(&some, now), [1, 2, 3]);
        // What is younger than a day stays, however large.
        assert_eq!(rules(None, Some(0)).outdated(&some, now), [1, 2, 3, 4]);
    }
}
