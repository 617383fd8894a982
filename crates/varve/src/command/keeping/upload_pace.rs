//! The pace of uploads: it follows the clock and the zone of this machine.

use std::sync::Arc;

use jiff::tz::TimeZone;
use varve_daily::UploadRates;
use varve_remote::Pace;
use varve_world::{Clock, RealClock};

/// Returns the pace of uploads for the option `--limit-rate`.
pub fn of(rates: Option<&UploadRates>) -> Option<Arc<Pace>> {
    let (rates, zone) = (rates?.clone(), TimeZone::system());
    Some(Arc::new(Pace::changing(move || rates.at(RealClock.now(), &zone).0)))
}
