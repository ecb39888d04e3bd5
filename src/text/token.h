// The id of a token in a model's vocabulary. Ids count from 0; negative values mean "no token".
#pragma once

#include <godwit/options.h>  // TokenId
