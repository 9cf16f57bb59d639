"""Fifty schemas of the kinds that people send; answers to them are bounded, so that a small model comes to an end."""


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required}


TEXT = {"type": "string", "maxLength": 12}
WORD = {"type": "string", "pattern": "^[a-z]{2,8}$"}
INT = {"type": "integer"}
BOOL = {"type": "boolean"}
NULL = {"type": "null"}


def array(items, low=0, high=3):
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


SCHEMAS = [
    # Plain values.
    INT, {"type": "number"}, BOOL, NULL, TEXT, WORD,
    {"type": "integer", "minimum": 1, "maximum": 10},
    {"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 3},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": 2.5, "maximum": 99.75},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "string", "format": "date"}, {"type": "string", "format": "time"}, {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "pattern": "^\\d{3}-\\d{4}$"}, {"type": "string", "pattern": "^(yes|no) ?[!?]$"},
    {"enum": ["red", "green", "blue"]}, {"enum": [1, "one", None, True]}, {"const": {"ok": [1, 2, {"x": None}]}},
    {"type": ["string", "null"], "maxLength": 6}, {"anyOf": [INT, NULL]},
    {"oneOf": [{"type": "string", "maxLength": 4}, {"type": "integer", "minimum": 7}]},
    # Arrays.
    array(INT, 1, 3), array(TEXT, 2, 2), array({"enum": ["a", "b"]}, 0, 4), array(array(BOOL, 1, 2), 1, 2),
    {"type": "array", "prefixItems": [WORD, INT, BOOL], "items": False, "minItems": 3},
    {"type": "array", "prefixItems": [{"const": "v1"}], "items": INT, "minItems": 2, "maxItems": 3},
    # Objects.
    obj(name=TEXT, age={"type": "integer", "minimum": 0, "maximum": 150}),
    obj(city=TEXT, country=TEXT, population={"type": "integer", "minimum": 0}),
    obj([], a=INT, b=BOOL), obj(["b"], a=INT, b=BOOL, c=NULL), obj(),
    obj(inner=obj(x=INT, deeper=obj(y=BOOL))), obj(tags=array(WORD, 1, 3), score={"type": "number", "minimum": 0, "maximum": 5}),
    obj(**{"with space": INT, "quote\"d": BOOL, "\u00fcml\u00e4ut": NULL}),
    {"type": "object", "propertyNames": {"maxLength": 6}, "additionalProperties": INT, "minProperties": 1, "maxProperties": 2},
    {"type": "object", "properties": {"kind": {"const": "x"}}, "required": ["kind"],
     "additionalProperties": {"type": "string", "maxLength": 3}, "maxProperties": 3},
    {"anyOf": [obj(type={"const": "circle"}, r=INT), obj(type={"const": "square"}, side=INT)]},
    {"oneOf": [obj(kind={"const": "a"}, v=INT), obj(kind={"const": "b"}, v=TEXT)]},
    {"allOf": [{"type": "object", "properties": {"id": INT}, "required": ["id"]},
               {"properties": {"on": BOOL}, "required": ["on"]}]},
    {"title": "Answer", "description": "what a class of Python's pydantic gives", "type": "object",
     "properties": {"text": {"title": "Text", "type": "string", "maxLength": 10},
                    "score": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, NULL], "default": None}},
     "required": ["text"]},
    # References.
    {"$defs": {"point": obj(x=INT, y=INT)}, **obj(start={"$ref": "#/$defs/point"}, end={"$ref": "#/$defs/point"})},
    {"definitions": {"color": {"enum": ["red", "blue"]}}, "type": "array", "items": {"$ref": "#/definitions/color"},
     "minItems": 1, "maxItems": 3},
    {"$defs": {"list": obj(["v"], v={"type": "integer", "minimum": 0, "maximum": 9},
                           next={"anyOf": [NULL, {"type": "array", "items": INT, "maxItems": 1}]})},
     "$ref": "#/$defs/list"},
    {"$defs": {"leaf": {"type": "object", "properties": {"leaf": BOOL}, "required": ["leaf"],
                        "additionalProperties": False},
               "tree": {"anyOf": [{"$ref": "#/$defs/leaf"},
                                  obj(left={"$ref": "#/$defs/leaf"}, right={"$ref": "#/$defs/leaf"})]}},
     "$ref": "#/$defs/tree"},
    obj(when={"type": "string", "format": "date-time"}), obj(mail={"type": "string", "format": "email"}),
    obj(steps=array(obj(title=WORD, done=BOOL), 1, 2), total={"type": "integer", "minimum": 1, "maximum": 99}),
]
