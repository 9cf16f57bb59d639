// START READING HERE. Three parts of one page: live figures, the comparison, the calculator.
import {get} from './api.js';
import {startCalculator} from './calc.js';
import {Compare} from './compare.js';
import {Live} from './live.js';

const live = new Live();
live.run();
const {policies} = await get('/api/policies');
const {chat} = await get('/api/state');
const compare = new Compare(policies, chat);
live.onState(state => compare.show(state));
await startCalculator(policies);
