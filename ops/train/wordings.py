"""How questions about the families are worded in training; the other splits' wordings are in `heldout.json`."""

from __future__ import annotations

FAMILIES: dict[str, tuple[str, ...]] = {
    "paper_field": (
        "What is the {key}?",
        "(What|Which) {key} is (given|printed|written|stated)(| on the paper| here)?",
        "(Read|Give|Copy) the {key}(|.)",
        "(What does it say|What is written) (for|next to|under) {key}?",
        "{key}(:|?)",
        "How much is the {key}?",
    ),
    "paper_price": (
        "How much is the {item}?",
        "What does (the |){item} cost?",
        "(What is|Give) the price of (the |){item}(?|.)",
        "Price of {item}(:|?)",
    ),
    "paper_yes": (
        "Is the {key} {value}?",
        "Does the (paper|document|page) (say|give|show) {value} (for|as) the {key}?",
        "(True or false|Yes or no): the {key} is {value}.",
    ),
    "paper_items": (
        "How many (items|things|products) are (listed|on the receipt|on the bill)?",
        "(Count|Tally) the (items|products) (on the receipt|bought).",
        "(Number|Count) of (items|products)(:|?)",
    ),
    "paper_extreme": (
        "(Which|What) (item|product) is the {extreme}?",
        "(Name|Pick|Find) the {extreme} (item|product).",
        "(What|Which) is the {extreme} (thing|item) on the (receipt|bill|list)?",
    ),
    "paper_kind": (
        "What (kind|type|sort) of (document|paper) is (this|it|shown)?",
        "(Which|What) (document|paper) (is this|do you see)?",
        "(Type|Kind) of document(:|?)",
    ),
    "paper_title": (
        "What is the (title|heading)(| of the (document|page|paper))?",
        "(Read|Copy) the (title|heading|first line).",
        "(What|Which) (heading|title) is (printed|at the top)?",
    ),
    "signed": (
        "Is the {paper} signed?",
        "(Has anyone|Did somebody) sign(|ed) the {paper}?",
        "Is there a signature(| on the {paper})?",
        "(Is the signature|Is a signature) (there|present)(| on the {paper})?",
    ),
    "tick_yes": (
        "Is (the box |){label} (ticked|checked)?",
        "Is the (box|check box) (for|next to|beside) {label} (ticked|checked|marked)?",
        "(Has|Was) {label} (been |)(ticked|checked|chosen|selected)?",
        "(True or false|Yes or no): {label} is (ticked|checked).",
    ),
    "tick_which": (
        "(Which|What) (box|option|field) is (ticked|checked|marked)?",
        "(What|Which one) (was|is) (selected|chosen|ticked)?",
        "(Name|Give) the (ticked|checked) (box|option).",
    ),
    "tick_count": (
        "How many (boxes|options) are (ticked|checked|marked)?",
        "(Count|Tally) the (ticked|checked) boxes.",
        "(Number|Count) of (ticked|checked) boxes(:|?)",
    ),
    "chart_extreme": (
        "(Which|What) (bar|one|category|label) (is|has) the {extreme}(| value)?",
        "(Where|When) is the (value|chart) the {extreme}?",
        "(Name|Pick|Find) the one with the {extreme} value.",
    ),
    "chart_value": (
        "What is the value (of|for|at) {name}?",
        "(How much|How many|What) is (shown|given) for {name}?",
        "(Read|Give) the value of {name}.",
        "Value of {name}(:|?)",
        "How (high|large) is {name}?",
    ),
    "chart_name_of": (
        "(Which|What) (one|bar|category|label) has the value {value}?",
        "(Where|For which) is the value {value}?",
        "(Name|Find) the one (at|with) {value}.",
    ),
    "chart_more": (
        "Is {a} {relation} {b}?",
        "Is the value of {a} {relation} (the value|that) of {b}?",
        "(True or false|Yes or no): {a} is {relation} {b}.",
    ),
    "chart_kind": (
        "What (kind|type|sort) of (chart|diagram) is (this|it|shown)?",
        "(Which|What) (chart|diagram) do you see?",
        "(Type|Kind) of chart(:|?)",
    ),
    "chart_trend": (
        "How do the values (change|develop|move)?",
        "(What is|Describe) the trend(| of the values)(?|.)",
        "(Do the values rise or fall|Which way do the values go)?",
    ),
    "meter_value": (
        "What does the {meter} (show|read|say)?",
        "(What|Which) value (is shown|can be read)(| on the {meter})?",
        "(Read|Give) the (value|reading)(| of the {meter}).",
        "(Reading|Value) of the {meter}(:|?)",
        "The {meter} is at (what|which) (value|number)?",
    ),
    "meter_yes": (
        "Is the (value|reading) on the {meter} {relation} {number}?",
        "Does the {meter} show {relation} {number}?",
        "(True or false|Yes or no): the {meter} shows {relation} {number}.",
    ),
    "thing_what": (
        "(What|Which) {noun} is (this|it|shown|in the (picture|image|photo))?",
        "(What|Which) {noun} do you see?",
        "(Name|Identify) the {noun}.",
        "What (is shown|can be seen)(| here)?",
        "What (kind|type|sort) of {noun} is (it|this|shown)?",
    ),
    "thing_is": (
        "Is (the|this) {noun} a {thing}?",
        "Does the (picture|image|photo) show a {thing}?",
        "(True or false|Yes or no): this is a {thing}.",
    ),
    "outermost": (
        "(Which|What) {noun} is (furthest|farthest) to the {side}?",
        "(Name|Pick|Find) the {noun} nearest to the {side}(| edge).",
        "(What|Which) is the {noun} closest to the {side}(| edge)?",
    ),
    "sign_number": (
        "What is the speed limit(| here)?",
        "How fast may (one|you|I|cars) (drive|go)(| here)?",
        "(What|Which) (number|speed) is on the sign?",
        "(Give|Read) the speed limit.",
    ),
    "damaged": (
        "Is the {thing} damaged?",
        "(Is there|Do you see) (any |)damage (on|to) the {thing}?",
        "(Does|Has) the {thing} (show|have|) (any |)damage?",
        "(True or false|Yes or no): the {thing} is damaged.",
        "(Is something|Is anything) wrong with the {thing}?",
    ),
    "damage_is": (
        "Is the {thing} {damage}?",
        "(Would you call|Can you see that) the {thing} (|is ){damage}?",
        "(True or false|Yes or no): the {thing} is {damage}.",
    ),
    "damage_kind": (
        "(What|Which) (damage|kind of damage|fault) does the {thing} have?",
        "What (happened to|is wrong with) the {thing}?",
        "(Name|Give) the (damage|state|condition) of the {thing}.",
        "How is the {thing} damaged?",
    ),
    "damage_level": (
        "How (badly|much|severely) is the {thing} damaged?",
        "How (large|bad|severe) is the damage(| to the {thing})?",
        "(Rate|Judge) the damage (of|to) the {thing}.",
    ),
    "damage_where": (
        "Where is the {thing} damaged?",
        "Where (on the {thing} |)is the damage?",
        "(In|On) (which|what) part of the {thing} is the damage?",
    ),
    "box": (
        "the {thing}",
        "Where is the {thing}?",
        "(Find|Locate|Mark) the {thing}.",
        "(Draw|Give|Put) a box around the {thing}.",
        "(Box|Edges|Bounds) of the {thing}(:|)",
        "{thing}",
    ),
}
