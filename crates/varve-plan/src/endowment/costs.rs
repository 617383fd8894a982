//! The input: the archive, the money, the places for copies, and the schemes to compare.

use serde::{Deserialize, Serialize};

use crate::input::{LARGEST, POSITIVE, PlanInputError, check, parse_toml};

/// Upper bounds on the numbers of places, schemes, and places of one scheme.
const PLACES_MAX: usize = 32;
const SCHEMES_MAX: usize = 32;
/// Failures of one place in a year. A larger rate would make a simulation slow, and is a mistake.
const FAILURES_MAX: f64 = 100.0;
const DAYS_PER_YEAR: f64 = 365.25;

/// The costs of keeping an archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveCosts {
    pub name: String,
    /// The origin of the figures.
    pub source: String,
    pub currency: String,
    /// Bytes of the store now.
    pub bytes: f64,
    /// The share by which it grows in a year.
    #[serde(default)]
    pub growth_per_year: f64,
    /// Bytes that are added in a year besides.
    #[serde(default)]
    pub added_bytes_per_year: f64,
    /// The years after which added bytes are forgotten.
    pub kept_years: Option<f64>,
    /// The interest of a year.
    pub interest: f64,
    #[serde(default)]
    pub interest_deviation: f64,
    /// The fall of prices in a year, as a share of them.
    pub price_fall: f64,
    #[serde(default)]
    pub price_fall_deviation: f64,
    /// Days between two audits, which find lost copies.
    pub audit_days: f64,
    /// The average number of days from an audit to a repaired copy.
    pub repair_days: f64,
    /// The required probability that no snapshot is lost.
    pub probability: f64,
    #[serde(rename = "place")]
    pub places: Vec<CopyPlace>,
    #[serde(rename = "scheme")]
    pub schemes: Vec<CopyScheme>,
}

/// A place for a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyPlace {
    pub name: String,
    pub source: String,
    /// Bytes of one device; a copy that is larger is on several. One device holds any copy if it is
    /// not given.
    pub device_bytes: Option<f64>,
    /// The price of a device for each byte.
    #[serde(default)]
    pub price: f64,
    /// Years after which a device is replaced; never if it is not given.
    pub life_years: Option<f64>,
    /// Failures of one device in a year.
    #[serde(default)]
    pub device_failures: f64,
    /// Losses of the whole place in a year.
    #[serde(default)]
    pub losses: f64,
    /// The cost of a byte in a year, such as power or rent.
    #[serde(default)]
    pub yearly: f64,
    /// The price of reading a byte to repair another copy.
    #[serde(default)]
    pub egress: f64,
}

/// A number of places of which some suffice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyScheme {
    pub name: String,
    /// Names of places. A name may occur several times.
    pub places: Vec<String>,
    /// The number of places that have all bytes together: 1 for whole copies.
    pub needed: u32,
}

/// A scheme with its places.
pub(super) struct SchemePlaces<'a> {
    pub name: &'a str,
    pub places: Vec<&'a CopyPlace>,
    pub needed: usize,
}

impl ArchiveCosts {
    /// Reads and checks the costs.
    ///
    /// # Errors
    /// If the text has no costs, a figure is out of range, or a scheme names an unknown place.
    pub fn parse(text: &str) -> Result<Self, PlanInputError> {
        let costs: Self = parse_toml(text)?;
        costs.check()?;
        Ok(costs)
    }

    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    fn check(&self) -> Result<(), PlanInputError> {
        check("bytes", self.bytes, 1.0, LARGEST)?;
        check("growth_per_year", self.growth_per_year, -0.99, 10.0)?;
        check("added_bytes_per_year", self.added_bytes_per_year, 0.0, LARGEST)?;
        check("kept_years", self.kept_years.unwrap_or(1.0), POSITIVE, LARGEST)?;
        check("interest", self.interest, -0.5, 1.0)?;
        check("interest_deviation", self.interest_deviation, 0.0, 0.2)?;
        check("price_fall", self.price_fall, -1.0, 0.9)?;
        check("price_fall_deviation", self.price_fall_deviation, 0.0, 0.2)?;
        check("audit_days", self.audit_days, 0.0, 36525.0)?;
        check("repair_days", self.repair_days, POSITIVE, 36525.0)?;
        check("probability", self.probability, 0.01, 0.999_999)?;
        check("the number of places", self.places.len() as f64, 1.0, PLACES_MAX as f64)?;
        check("the number of schemes", self.schemes.len() as f64, 1.0, SCHEMES_MAX as f64)?;
        for place in &self.places {
            let named = |field| format!("place {:?}: {field}", place.name);
            check(&named("device_bytes"), place.device_bytes.unwrap_or(LARGEST), 1.0, LARGEST)?;
            check(&named("price"), place.price, 0.0, LARGEST)?;
            check(&named("life_years"), place.life_years.unwrap_or(1.0), 0.1, LARGEST)?;
            check(&named("device_failures"), place.device_failures, 0.0, FAILURES_MAX)?;
            check(&named("losses"), place.losses, 0.0, FAILURES_MAX)?;
            check(&named("yearly"), place.yearly, 0.0, LARGEST)?;
            check(&named("egress"), place.egress, 0.0, LARGEST)?;
        }
        for scheme in &self.schemes {
            let named = |field| format!("scheme {:?}: {field}", scheme.name);
            check(&named("the number of places"), scheme.places.len() as f64, 1.0, PLACES_MAX as f64)?;
            check(&named("needed"), scheme.needed.into(), 1.0, scheme.places.len() as f64)?;
            let is_known = |name: &&String| self.places.iter().any(|place| place.name == **name);
            if let Some(strange) = scheme.places.iter().find(|name| !is_known(name)) {
                let problem = format!("there is no place {strange:?}");
                return Err(PlanInputError::Value { place: named("places"), problem });
            }
        }
        Ok(())
    }

    pub(super) fn layouts(&self) -> Vec<SchemePlaces<'_>> {
        let named = |name: &String| self.places.iter().find(|place| place.name == *name);
        let schemes = self.schemes.iter().map(|scheme| SchemePlaces {
            name: scheme.name.as_str(),
            places: scheme.places.iter().filter_map(named).collect(),
            needed: scheme.needed as usize,
        });
        schemes.collect()
    }

    /// Returns the bytes of the store after some years.
    pub(super) fn bytes_after(&self, years: f64) -> f64 {
        let kept = self.kept_years.map_or(years, |kept| kept.min(years));
        self.bytes * (1.0 + self.growth_per_year).powf(years) + self.added_bytes_per_year * kept
    }

    pub(super) fn audit_years(&self) -> f64 {
        self.audit_days / DAYS_PER_YEAR
    }

    pub(super) fn repair_years(&self) -> f64 {
        self.repair_days / DAYS_PER_YEAR
    }
}

impl CopyPlace {
    /// Returns the number of devices for some bytes.
    pub(super) fn devices(&self, bytes: f64) -> f64 {
        self.device_bytes.map_or(1.0, |device| (bytes / device).ceil().max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::Example;

    #[test]
    fn the_example_is_good_and_mistakes_are_named() {
        let text = Example::Endowment.text();
        let costs = ArchiveCosts::parse(text).unwrap();
        assert_eq!(costs.layouts().len(), 5);
        assert!(costs.places.iter().all(|place| place.source.len() > 10));
        assert!((costs.bytes_after(50.0) - 9e12).abs() < 1.0, "ten years of additions are kept");
        let error = ArchiveCosts::parse(&text.replace("\"bucket\"]", "\"cloud\"]")).unwrap_err().to_string();
        assert!(error.contains("there is no place \"cloud\""), "{error}");
        let error = ArchiveCosts::parse(&text.replace("needed = 2", "needed = 4")).unwrap_err().to_string();
        assert_eq!(error, "scheme \"2 of 3\": needed: 4 is not between 1 and 3");
    }
}
